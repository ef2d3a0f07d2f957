// PROXY protocol header, versions 1 and 2: a load balancer puts it in front of the first byte of any protocol to hand
// on the client's address. https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt (sections 2.1 and 2.2)
//
//     v1   "PROXY" SP ("TCP4" | "TCP6" | "UNKNOWN") [SP source SP destination SP source port SP destination port] CRLF
//     v2   signature (12) | version 2, command | family, transport | uint16 length | addresses, ports, TLVs
#pragma once

#include <cstddef>
#include <string>

#include "dissect/dissector.hpp"

namespace tapscope {

struct ProxyHeader {
    Probe answer = Probe::no;  // need_more: the bytes are the start of one
    std::size_t size = 0;      // bytes
    unsigned version = 0;      // 1 or 2
    std::string endpoint =
        {};  // "address:port" of the client; empty: none named (LOCAL, UNKNOWN, UNIX sockets)
};

// `bytes`: the start of the stream to the server.
ProxyHeader read_proxy_header(Bytes bytes);

}  // namespace tapscope
