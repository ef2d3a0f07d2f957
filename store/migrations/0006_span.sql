-- Rows of an imported span table: the id that its maker knows the call by, and the caller's own clock, which other
-- clocks are never compared with. The callee's clock is in call.
CREATE TABLE span (
  id INTEGER PRIMARY KEY,
  call INTEGER NOT NULL REFERENCES call (id),
  message_id TEXT NOT NULL,
  sent_ns INTEGER NOT NULL,
  answered_ns INTEGER NOT NULL
) STRICT;

CREATE INDEX span_call ON span (call);

CREATE VIEW v_span_link AS
SELECT s.call, s.message_id, p.message_id AS parent_message_id,
       coalesce(k.name, 'unknown') AS kind, coalesce(l.probability, 0.0) AS probability,
       r.message_id AS runner_up_message_id, coalesce(l.runner_up_probability, 0.0) AS runner_up_probability
FROM span s
LEFT JOIN link l ON l.child = s.call
LEFT JOIN code k ON k.kind = 'link_kind' AND k.value = l.kind
LEFT JOIN span p ON p.call = l.parent AND l.parent >= 0
LEFT JOIN span r ON r.call = l.runner_up AND l.runner_up >= 0;
