// What a capture gives up once the interface and its files are open.
#pragma once

#include <string>

namespace tapscope {

// Becomes `user` when started as root, gives up every capability in all threads, and forbids that any is ever gained
// again. User "root" keeps what it has, except that. Throws SourceError. https://man7.org/linux/man-pages/man7/capabilities.7.html
void drop_privileges(const std::string& user);

}  // namespace tapscope
