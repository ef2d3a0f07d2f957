"""Counters of oddities with words, so that a reader need not know the engine to see what was lost."""

from __future__ import annotations

STAGES = {
    "source": "reading the capture",
    "spool": "reading the spool",
    "discarded": "TCP payload",
    "missing": "never seen",
    "unparsed": "streams",
    "decode": "decoding packets",
    "tcp": "TCP",
    "proxy_header": "PROXY header",
    "http": "HTTP",
    "ajp": "AJP",
    "mysql": "MySQL",
    "cjdbc": "C-JDBC",
    "avatica": "Avatica (JDBC over HTTP)",
    "sql": "SQL statements",
    "tls": "TLS",
    "postgres": "PostgreSQL",
    "pairing": "pairing requests and responses",
    "match": "matching calls",
    "load": "queue length",
    "host": "host logs",
    "events": "event-monitor logs",
}
"""First part of a counter's name -> the stage that counts."""

WORDS = {
    "spool.damaged_segments": "Segments that are damaged",
    "spool.deleted_segments": "Old segments that were deleted to keep the bound of the spool",
    "spool.late_segments": "Segments that had to wait for a slow disk",
    "spool.messages_without_connection": "Messages left out: who sent them stood in a lost segment",
    "spool.missing_segments": "Segments that are missing",
    "spool.references_lost": "References to messages of lost or deleted segments",
    "source.truncated_file": "Files that end in the middle of a packet",
    "source.late_packet": "Packets further out of order than --reorder-window",
    "source.unknown_link_type": "Packets of a link type that is not known",
    "decode.arp": "ARP: carries no calls",
    "decode.icmp": "ICMP: carries no calls",
    "decode.udp": "UDP: carries no calls of a known protocol",
    "decode.lldp": "LLDP: carries no calls",
    "decode.fragment_incomplete": "IP fragments whose datagram never became whole",
    "decode.fragment_copy": "IP fragments that came again",
    "decode.fragment_overlap": "IP fragments that overlap others: the bytes that came first stay",
    "decode.fragment_bound": "IP fragments beyond the bound on memory",
    "decode.fragments_joined": "IP fragments put together",
    "decode.datagram_joined": "IP datagrams put together from fragments",
    "decode.bad_fragment": "IP fragments of impossible size or place",
    "decode.too_deep": "Packets with more tunnels inside one another than are followed",
    "decode.cut_by_mirror": "Packets that a mirror cut before it sent them",
    "decode.erspan_timestamp": "Packets timed by the mirroring switch (ERSPAN III)",
    "decode.erspan_timestamp_not_utc": "Switch timestamps not tied to UTC: the capture's time stays",
    "decode.tap_points_beyond_bound": "Packets of more tap points than are told apart",
    "decode.wifi": "IEEE 802.11 frames: not read",
    "decode.gtp": "GTP tunnels: not read",
    "decode.l2tp": "L2TP tunnels: not read",
    "decode.unknown_ethertype": "Packets of an unknown kind",
    "tcp.retransmission": "Segments sent again",
    "tcp.syn_retransmission": "Connection requests (SYN) sent again: the listener did not answer at once",
    "tcp.syn_ack_retransmission": "Answers to connection requests (SYN-ACK) sent again",
    "tcp.duplicate_ack": "Acknowledgements that repeat the one before while data was on the way: losses",
    "tcp.same_addresses_elsewhere": "Connections with addresses and ports of another one, elsewhere",
    "tcp.mirror_copy": "Copies of packets made by the mirror, removed",
    "tcp.gap": "Holes in streams: bytes that the tap never saw",
    "tcp.out_of_order": "Segments that came out of order, put right",
    "tcp.overlap": "Segments that repeat a part of another one",
    "tcp.port_reused": "Connections whose ports were used again at once",
    "tcp.rst": "Connections that were reset",
    "tcp.keep_alive": "Keep-alive probes",
    "tcp.zero_window": "Segments that say: my receive buffer is full",
    "tcp.urgent": "Segments with urgent data, read in line",
    "tcp.retransmission_of_unseen": "... of segments that the tap did not see the first time",
    "discarded.after_close": "Sent on a connection that had ended",
    "discarded.after_fin": "Behind the end of a stream",
    "discarded.before_stream_start": "Before the start of a stream",
    "discarded.keep_alive": "Keep-alive probes: a byte that was there",
    "discarded.mirror_copy": "Copies made by the mirror",
    "discarded.never_in_order": "Could not be put in order",
    "discarded.reason_of_reset": "Text that explains a reset",
    "discarded.retransmission": "Sent again by the sender: was there already",
    "discarded.seq_out_of_range": "Sequence number far outside of the window",
    "missing.acknowledged_but_not_seen": "Acknowledged by the receiver, not seen: lost on the way to the tap",
    "missing.cut_by_snaplen": "Cut off by the snap length",
    "missing.not_seen": "Neither seen nor acknowledged: lost before the receiver, or one-way capture",
    "unparsed.unknown_protocol": "Of no protocol that tapscope reads",
    "unparsed.tls.handshake": "Handshakes and alerts of TLS",
    "unparsed.tls.overhead": "Headers and seals of TLS records",
    "unparsed.tls.early_data": "Early data of TLS 1.3",
    "unparsed.tls.cut_by_gap": "TLS records that a gap cut",
    "unparsed.tls.decryption_failed": "TLS records that do not open",
    "unparsed.between_messages": "Between messages",
    "unparsed.cut_by_end_of_stream": "A message that the end of the stream cut off",
    "proxy_header": "PROXY headers of load balancers",
    "proxy_header.version_1": "Connections whose client a load balancer named, version 1",
    "proxy_header.version_2": "Connections whose client a load balancer named, version 2",
    "http.version_0_9": "Requests of HTTP/0.9, which has no heads",
    "http.tunnel": "Bytes of connections that left HTTP (CONNECT, WebSocket)",
    "cjdbc.cursor_not_seen": "Rows of C-JDBC cursors that were opened before the capture: inferred",
    "cjdbc.sequoia": "Connections of Sequoia: experimental, inferred",
    "cjdbc.object_stream": "Connections of C-JDBC before 2.0: times only",
    "cjdbc.statement_cut": "C-JDBC statements of which only the first 64 KiB were looked at",
    "cjdbc.unreadable_answer": "C-JDBC answers that could not be decoded: ended where the client went on",
    "cjdbc.unreadable_command": "C-JDBC commands that could not be decoded",
    "avatica.missing_statement": "Avatica calls whose statement the server did not know any more",
    "avatica.unreadable_answer": "Avatica answers that could not be read",
    "avatica.statement_not_seen": "Avatica executions whose statement was sent before the capture",
    "avatica.request_cut": "Avatica calls of which only the start was looked at",
    "mysql.rows_without_tokens": "Rows of result sets that give no evidence: after the first 4, or 16 values",
    "sql.literals_beyond_bound": "Literals of long statements that give no evidence",
    "mysql.login_not_seen": "Connections whose login was lost: what was agreed is inferred",
    "mysql.tls_connection": "Connections that turned to TLS",
    "tls.decrypted": "Connections opened with their secrets",
    "tls.no_secrets": "Connections under TLS without secrets (--tls-keylog): times only",
    "tls.secrets_not_enough": "Connections under TLS with too few secrets: times only",
    "tls.cipher_not_read": "Connections under TLS with a cipher that is not read: times only",
    "tls.version_not_read": "Connections under TLS 1.1 and older: times only",
    "tls.decryption_failed": "Directions of connections that could not be decrypted any more",
    "postgres.tls_connection": "PostgreSQL connections under TLS: times only",
    "postgres.tls": "PostgreSQL bytes under TLS: times only",
    "postgres.gss_encrypted": "PostgreSQL bytes under GSSAPI encryption: times only",
    "postgres.gss_connection": "PostgreSQL connections under GSSAPI: times only",
    "postgres.joined_midstream": "PostgreSQL connections whose start was not seen",
    "postgres.before_first_message": "Bytes before the first PostgreSQL message that could be told",
    "postgres.resynchronisation": "PostgreSQL bytes between a gap and the next message",
    "postgres.answers_not_told_apart": "PostgreSQL answers after a gap, before it was known whose they are",
    "postgres.skipped_after_error": "Pipelined PostgreSQL statements that the server skipped after an error",
    "postgres.statement_cut": "PostgreSQL statements longer than what is read of them",
    "postgres.statement_evicted": "Prepared PostgreSQL statements forgotten: more than 1023 on a connection",
    "postgres.request_text_lost": "PostgreSQL requests whose text fell into a gap",
    "postgres.request_cut": "PostgreSQL requests that the end of the stream cut",
    "postgres.unsolicited_error": "PostgreSQL connections ended by the server with an error",
    "postgres.unexpected_ready": "ReadyForQuery of PostgreSQL without a request",
    "postgres.replication_stream": "PostgreSQL replication streams",
    "postgres.cancel_request": "Requests to cancel a PostgreSQL statement",
    "pairing.orphan_response": "Responses without a request",
    "pairing.answer_lost": "Requests whose response fell into a gap",
    "pairing.inferred": "Responses behind a loss whose request is an estimate, flagged so",
    "pairing.pipeline_after_loss": "Losses between several requests on the way",
    "pairing.pipelined_request": "Requests sent before the answer to the one before",
    "load.open_until_end": "Calls without an answer, counted as waiting until their connection ended",
    "load.lost_response_excluded": "Calls whose response fell into a gap, not in the queue length",
    "load.negative_stay_excluded": "Calls that end before they begin, not in the queue length",
    "match.pairs_too_large": "Groups of calls that were too large for joint matching",
    "host.unknown_file": "Files that no reader of host logs knows",
    "host.truncated_file": "Files that were cut",
}

NOT_LOST = ("packets", "spool.segments", "tcp.segments", "tcp.payload")
"""Totals, not oddities: shown elsewhere."""

NO_CALLS = frozenset(
    f"decode.{kind}"
    for kind in (
        "arp",
        "eapol",
        "eigrp",
        "fragment_copy",
        "gre_acknowledgement",
        "gre_keep_alive",
        "icmp",
        "igmp",
        "ipv6_no_next_header",
        "llc",
        "lldp",
        "loopback_test",
        "mpls_control",
        "ospf",
        "pause_frame",
        "pim",
        "ppp_control",
        "pppoe_discovery",
        "ptp",
        "rarp",
        "sctp",
        "slow_protocol",
        "tunnel_control",
        "udp",
        "vrrp",
    )
)
"""Packets that were understood well enough to know that no call is in them."""


def stage(name: str) -> str:
    """Stage that counted, in words."""
    return STAGES.get(name.partition(".")[0], name.partition(".")[0])


def words(name: str) -> str:
    """What a counter counts: a sentence for the common ones, else its name's last part as a phrase."""
    if name in WORDS:
        return WORDS[name]
    rest = name.partition(".")[2] or name
    phrase = rest.replace("_", " ").replace(".", ": ")
    return phrase[:1].upper() + phrase[1:]


def undecoded_packets(counters: list[tuple[str, int, str]]) -> int:
    """Packets that could not be decoded and might have held calls."""
    return sum(
        value
        for name, value, unit in counters
        if name.startswith("decode.") and unit == "packets" and name not in NO_CALLS
    )
