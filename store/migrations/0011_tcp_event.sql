-- What TCP did that may have kept somebody waiting, with times: the counts of it stood in connection only.
CREATE TABLE tcp_event (
  id INTEGER PRIMARY KEY,
  conn INTEGER NOT NULL REFERENCES connection (id),
  kind INTEGER NOT NULL,
  direction INTEGER NOT NULL,
  begin_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  packets INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) STRICT;

CREATE VIEW v_tcp_event AS
SELECT e.id, e.conn, k.name AS kind, d.name AS direction,
       ca.text AS client_addr, c.client_port, sa.text AS server_addr, c.server_port,
       e.begin_ns, e.end_ns, e.packets, e.bytes
FROM tcp_event e
JOIN connection c ON c.id = e.conn
LEFT JOIN address ca ON ca.id = c.client_addr
LEFT JOIN address sa ON sa.id = c.server_addr
LEFT JOIN code k ON k.kind = 'tcp_event_kind' AND k.value = e.kind
LEFT JOIN code d ON d.kind = 'direction' AND d.value = e.direction;
