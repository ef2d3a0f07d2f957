#include "source/privileges.hpp"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "source/packet.hpp"

namespace tapscope {
namespace {

[[noreturn]] void fail(const std::string& what) {
    throw SourceError(what + ": " + std::strerror(errno), "", -1,
                      "Name another user with -Z, or start without root.");
}

void become(const std::string& user) {
    errno = 0;
    const passwd* entry = getpwnam(user.c_str());
    if (entry == nullptr)
        throw SourceError("no such user: " + user, "", -1, "Name an existing unprivileged user with -Z.");
    // The bounding set can only be emptied while CAP_SETPCAP is there. Numbers behind the last one are refused.
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 && errno != EPERM)
            fail("cannot drop capabilities");
    if (initgroups(user.c_str(), entry->pw_gid) != 0 ||
        setresgid(entry->pw_gid, entry->pw_gid, entry->pw_gid) != 0 ||
        setresuid(entry->pw_uid, entry->pw_uid, entry->pw_uid) != 0)
        fail("cannot become user " + user);
    if (entry->pw_uid != 0 && setuid(0) == 0) {
        errno = EPERM;
        fail("root could be had again");
    }
}

}  // namespace

void drop_privileges(const std::string& user) {
    const bool root = geteuid() == 0;
    if (root && user != "root") become(user);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("cannot forbid new privileges");
    if (root && user == "root") return;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    if (syscall(SYS_capset, &header, none) != 0) fail("cannot drop capabilities");
}

}  // namespace tapscope
