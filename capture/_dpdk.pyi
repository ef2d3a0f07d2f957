from collections.abc import Mapping, Sequence

from tapscope.capture import _native

class Capture(_native.Capture):
    @staticmethod
    def of_device(
        *,
        eal: Sequence[str],
        device: str,
        interface: str,
        queues: int,
        promiscuous: bool,
        salt: bytes,
        keep_text: bool,
        port_map: Mapping[int, int],
        handed_over: bool,
        tls_keylog: str,
        tls_key_wait_ns: int,
    ) -> Capture: ...
