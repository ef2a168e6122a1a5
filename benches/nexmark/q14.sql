SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
       CASE
         WHEN date_part('hour', date_time) >= 8 AND date_part('hour', date_time) <= 18 THEN 'dayTime'
         WHEN date_part('hour', date_time) <= 6 OR date_part('hour', date_time) >= 20 THEN 'nightTime'
         ELSE 'otherTime'
       END AS bid_time_type,
       date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
