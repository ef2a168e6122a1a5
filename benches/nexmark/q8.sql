SELECT p.id, p.name, p.starttime
FROM (SELECT DISTINCT id, name, date_bin(INTERVAL '10 seconds', date_time, TIMESTAMP '2000-01-01 00:00:00') AS starttime FROM person) p
JOIN (SELECT DISTINCT seller, date_bin(INTERVAL '10 seconds', date_time, TIMESTAMP '2000-01-01 00:00:00') AS starttime FROM auction) a
ON p.id = a.seller AND p.starttime = a.starttime
