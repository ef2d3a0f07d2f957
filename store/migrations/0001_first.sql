-- First schema. Columns and units: docs/formats.md. ids are row numbers counted from 0; -1 = none or not observed.
-- Foreign keys are declared where the reference can never be -1; tapscope checks them in its tests, not while loading.

CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE code (
  kind TEXT NOT NULL,
  value INTEGER NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (kind, value)
) STRICT, WITHOUT ROWID;

CREATE TABLE source (
  id INTEGER PRIMARY KEY,
  path TEXT NOT NULL,
  kind TEXT NOT NULL,
  format TEXT NOT NULL DEFAULT '',
  bytes INTEGER NOT NULL DEFAULT 0,
  first_ns INTEGER NOT NULL DEFAULT -1,
  last_ns INTEGER NOT NULL DEFAULT -1,
  detail TEXT NOT NULL DEFAULT '{}'
) STRICT;

CREATE TABLE counter (
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL,
  unit TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE address (
  id INTEGER PRIMARY KEY,
  text TEXT NOT NULL
) STRICT;

CREATE TABLE class (
  id INTEGER PRIMARY KEY,
  protocol INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;

CREATE TABLE connection (
  id INTEGER PRIMARY KEY,
  client_addr INTEGER NOT NULL REFERENCES address (id),
  server_addr INTEGER NOT NULL REFERENCES address (id),
  client_port INTEGER NOT NULL,
  server_port INTEGER NOT NULL,
  protocol INTEGER NOT NULL,
  tap_point INTEGER NOT NULL,
  first_ns INTEGER NOT NULL,
  last_ns INTEGER NOT NULL,
  syn_ns INTEGER NOT NULL,
  established_ns INTEGER NOT NULL,
  closed_ns INTEGER NOT NULL,
  close_how INTEGER NOT NULL,
  midstream INTEGER NOT NULL,
  syn_retransmits INTEGER NOT NULL,
  retransmits_to_server INTEGER NOT NULL,
  retransmits_to_client INTEGER NOT NULL,
  duplicates INTEGER NOT NULL,
  bytes_to_server INTEGER NOT NULL,
  bytes_to_client INTEGER NOT NULL,
  missing_to_server INTEGER NOT NULL,
  missing_to_client INTEGER NOT NULL,
  unparsed_to_server INTEGER NOT NULL,
  unparsed_to_client INTEGER NOT NULL
) STRICT;

CREATE TABLE message (
  id INTEGER PRIMARY KEY,
  conn INTEGER NOT NULL REFERENCES connection (id),
  direction INTEGER NOT NULL,
  protocol INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  begin_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  wire_bytes INTEGER NOT NULL,
  missing_bytes INTEGER NOT NULL,
  class_id INTEGER NOT NULL,
  status INTEGER NOT NULL,
  tcp_seq INTEGER NOT NULL,
  flags INTEGER NOT NULL,
  request INTEGER NOT NULL
) STRICT;

CREATE TABLE evidence (
  id INTEGER PRIMARY KEY,
  message INTEGER NOT NULL REFERENCES message (id),
  slot INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  hash INTEGER NOT NULL
) STRICT;

CREATE TABLE call (
  id INTEGER PRIMARY KEY,
  conn INTEGER NOT NULL REFERENCES connection (id),
  request INTEGER NOT NULL REFERENCES message (id),
  response INTEGER NOT NULL,
  client_node INTEGER NOT NULL REFERENCES node (id),
  server_node INTEGER NOT NULL REFERENCES node (id),
  protocol INTEGER NOT NULL,
  class_id INTEGER NOT NULL,
  arrive_ns INTEGER NOT NULL,
  request_end_ns INTEGER NOT NULL,
  response_begin_ns INTEGER NOT NULL,
  depart_ns INTEGER NOT NULL,
  status INTEGER NOT NULL,
  flags INTEGER NOT NULL,
  tcp_seq INTEGER NOT NULL
) STRICT;

CREATE TABLE node (
  id INTEGER PRIMARY KEY,
  addr INTEGER NOT NULL REFERENCES address (id),
  port INTEGER NOT NULL,
  protocol INTEGER NOT NULL,
  depth INTEGER NOT NULL,
  name TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE link (
  id INTEGER PRIMARY KEY,
  child INTEGER NOT NULL REFERENCES call (id),
  parent INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  probability REAL NOT NULL,
  runner_up INTEGER NOT NULL,
  runner_up_probability REAL NOT NULL
) STRICT;

CREATE TABLE trace (
  id INTEGER PRIMARY KEY,
  root INTEGER NOT NULL REFERENCES call (id),
  calls INTEGER NOT NULL,
  begin_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  complete INTEGER NOT NULL,
  probability REAL NOT NULL
) STRICT;

CREATE TABLE trace_call (
  id INTEGER PRIMARY KEY,
  call INTEGER NOT NULL REFERENCES call (id),
  trace INTEGER NOT NULL,
  depth INTEGER NOT NULL,
  intra_node_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE load (
  id INTEGER PRIMARY KEY,
  node INTEGER NOT NULL REFERENCES node (id),
  window_ns INTEGER NOT NULL,
  width_ns INTEGER NOT NULL,
  load REAL NOT NULL,
  max INTEGER NOT NULL,
  arrivals INTEGER NOT NULL,
  completions INTEGER NOT NULL,
  pit_mean_ns REAL,
  pit_max_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE host_table (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  host TEXT NOT NULL,
  kind TEXT NOT NULL,
  source INTEGER NOT NULL REFERENCES source (id)
) STRICT;

CREATE TABLE host_column (
  id INTEGER PRIMARY KEY,
  host_table INTEGER NOT NULL REFERENCES host_table (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  unit TEXT NOT NULL,
  type TEXT NOT NULL,
  original TEXT NOT NULL,
  UNIQUE (host_table, name)
) STRICT;

CREATE TABLE event_call (
  id INTEGER PRIMARY KEY,
  tier TEXT NOT NULL,
  host TEXT NOT NULL DEFAULT '',
  request_id TEXT NOT NULL DEFAULT '',
  ordinal INTEGER NOT NULL DEFAULT -1,
  class TEXT NOT NULL DEFAULT '',
  arrive_ns INTEGER NOT NULL,
  downstream_send_ns INTEGER NOT NULL DEFAULT -1,
  downstream_receive_ns INTEGER NOT NULL DEFAULT -1,
  depart_ns INTEGER NOT NULL,
  status INTEGER NOT NULL DEFAULT -1,
  detail TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE event_load (
  id INTEGER PRIMARY KEY,
  tier TEXT NOT NULL,
  window_ns INTEGER NOT NULL,
  width_ns INTEGER NOT NULL,
  load REAL NOT NULL,
  max INTEGER NOT NULL,
  arrivals INTEGER NOT NULL,
  completions INTEGER NOT NULL
) STRICT;

CREATE TABLE agreement (
  id INTEGER PRIMARY KEY,
  tier TEXT NOT NULL,
  subject TEXT NOT NULL,
  measure TEXT NOT NULL,
  value REAL,
  low REAL,
  high REAL,
  unit TEXT NOT NULL DEFAULT '',
  detail TEXT NOT NULL DEFAULT ''
) STRICT;

-- Which link belongs to a call (v_link), and which calls a call made (waterfall of a trace).
CREATE INDEX link_child ON link (child);
CREATE INDEX link_parent ON link (parent);
-- The calls of a trace, in order.
CREATE INDEX trace_call_trace ON trace_call (trace);
CREATE INDEX trace_call_call ON trace_call (call);
-- The load series of one node.
CREATE INDEX load_node ON load (node, window_ns);
-- The true calls of one request, and of one tier in order of time.
CREATE INDEX event_call_request ON event_call (request_id);

CREATE VIEW v_connection AS
SELECT c.id, p.name AS protocol,
       ca.text AS client_addr, c.client_port, sa.text AS server_addr, c.server_port, c.tap_point,
       c.first_ns, c.last_ns, c.syn_ns, c.established_ns, c.closed_ns, h.name AS close_how, c.midstream,
       c.syn_retransmits, c.retransmits_to_server, c.retransmits_to_client, c.duplicates,
       c.bytes_to_server, c.bytes_to_client, c.missing_to_server, c.missing_to_client,
       c.unparsed_to_server, c.unparsed_to_client
FROM connection c
LEFT JOIN address ca ON ca.id = c.client_addr
LEFT JOIN address sa ON sa.id = c.server_addr
LEFT JOIN code p ON p.kind = 'protocol' AND p.value = c.protocol
LEFT JOIN code h ON h.kind = 'close_how' AND h.value = c.close_how;

CREATE VIEW v_message AS
SELECT m.id, m.begin_ns, m.end_ns, ca.text AS client_addr, c.client_port, sa.text AS server_addr, c.server_port,
       d.name AS direction, p.name AS protocol, k.name AS kind, m.wire_bytes, m.missing_bytes,
       coalesce(t.text, '') AS class, m.status, m.tcp_seq,
       coalesce((SELECT group_concat(f.name, '|') FROM code f WHERE f.kind = 'message_flag' AND m.flags & f.value), '')
         AS flags,
       m.request
FROM message m
JOIN connection c ON c.id = m.conn
LEFT JOIN address ca ON ca.id = c.client_addr
LEFT JOIN address sa ON sa.id = c.server_addr
LEFT JOIN class t ON t.id = m.class_id
LEFT JOIN code d ON d.kind = 'direction' AND d.value = m.direction
LEFT JOIN code p ON p.kind = 'protocol' AND p.value = m.protocol
LEFT JOIN code k ON k.kind = 'message_kind' AND k.value = m.kind;

CREATE VIEW v_call AS
SELECT a.id, a.arrive_ns AS ts_ns, ca.text AS src, c.client_port AS sport, sa.text AS dst, c.server_port AS dport,
       a.tcp_seq, p.name AS protocol, coalesce(t.text, '') AS class,
       a.arrive_ns, a.request_end_ns, a.response_begin_ns, a.depart_ns,
       CASE WHEN a.depart_ns >= 0 THEN a.depart_ns - a.arrive_ns ELSE -1 END AS response_time_ns,
       a.status,
       coalesce((SELECT group_concat(f.name, '|') FROM code f WHERE f.kind = 'call_flag' AND a.flags & f.value), '')
         AS flags,
       a.client_node, cn.name AS client_name, a.server_node, sn.name AS server_name, a.conn
FROM call a
JOIN connection c ON c.id = a.conn
LEFT JOIN address ca ON ca.id = c.client_addr
LEFT JOIN address sa ON sa.id = c.server_addr
LEFT JOIN class t ON t.id = a.class_id
LEFT JOIN node cn ON cn.id = a.client_node
LEFT JOIN node sn ON sn.id = a.server_node
LEFT JOIN code p ON p.kind = 'protocol' AND p.value = a.protocol;

-- One row per call: a call without a row in link has an unknown parent.
CREATE VIEW v_link AS
SELECT a.id AS child, nullif(coalesce(l.parent, -1), -1) AS parent,
       a.arrive_ns AS child_ts_ns, ca.text AS child_src, cc.client_port AS child_sport,
       sa.text AS child_dst, cc.server_port AS child_dport, a.tcp_seq AS child_tcp_seq,
       b.arrive_ns AS parent_ts_ns, cb.text AS parent_src, cp.client_port AS parent_sport,
       sb.text AS parent_dst, cp.server_port AS parent_dport, b.tcp_seq AS parent_tcp_seq,
       coalesce(l.probability, 0.0) AS probability, coalesce(l.runner_up_probability, 0.0) AS runner_up_probability,
       coalesce(k.name, 'unknown') AS kind
FROM call a
JOIN connection cc ON cc.id = a.conn
LEFT JOIN address ca ON ca.id = cc.client_addr
LEFT JOIN address sa ON sa.id = cc.server_addr
LEFT JOIN link l ON l.child = a.id
LEFT JOIN code k ON k.kind = 'link_kind' AND k.value = l.kind
LEFT JOIN call b ON b.id = l.parent
LEFT JOIN connection cp ON cp.id = b.conn
LEFT JOIN address cb ON cb.id = cp.client_addr
LEFT JOIN address sb ON sb.id = cp.server_addr;

CREATE VIEW v_trace AS
SELECT t.id, t.begin_ns, t.end_ns,
       CASE WHEN t.end_ns >= 0 THEN t.end_ns - t.begin_ns ELSE -1 END AS response_time_ns,
       t.calls, t.complete, t.probability,
       coalesce(p.name, '') AS protocol, coalesce(s.text, '') AS class, a.status, n.name AS entry,
       ca.text AS src, c.client_port AS sport, t.root
FROM trace t
JOIN call a ON a.id = t.root
JOIN connection c ON c.id = a.conn
LEFT JOIN address ca ON ca.id = c.client_addr
LEFT JOIN class s ON s.id = a.class_id
LEFT JOIN node n ON n.id = a.server_node
LEFT JOIN code p ON p.kind = 'protocol' AND p.value = a.protocol;

CREATE VIEW v_node AS
SELECT n.id, n.name, d.text AS addr, n.port, p.name AS protocol, n.depth
FROM node n
LEFT JOIN address d ON d.id = n.addr
LEFT JOIN code p ON p.kind = 'protocol' AND p.value = n.protocol;

CREATE VIEW v_load AS
SELECT l.id, n.name AS node, l.window_ns AS window_start_ns, l.width_ns, l.load, l.max, l.arrivals, l.completions,
       l.pit_mean_ns, l.pit_max_ns
FROM load l
JOIN node n ON n.id = l.node;

-- What the tap lost, per listener: one row per server address, port and protocol.
CREATE VIEW v_loss AS
SELECT sa.text AS server_addr, c.server_port, p.name AS protocol,
       count(*) AS connections, sum(c.midstream) AS midstream,
       sum(c.bytes_to_server + c.bytes_to_client) AS bytes,
       sum(c.missing_to_server + c.missing_to_client) AS missing_bytes,
       sum(c.unparsed_to_server + c.unparsed_to_client) AS unparsed_bytes,
       sum(c.retransmits_to_server + c.retransmits_to_client) AS retransmits,
       sum(c.syn_retransmits) AS syn_retransmits, sum(c.duplicates) AS duplicates
FROM connection c
LEFT JOIN address sa ON sa.id = c.server_addr
LEFT JOIN code p ON p.kind = 'protocol' AND p.value = c.protocol
GROUP BY c.server_addr, c.server_port, c.protocol
ORDER BY bytes DESC;
