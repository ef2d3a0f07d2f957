#include "source/privileges.hpp"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

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

// Capabilities and no_new_privs belong to a thread. Only async-signal-safe calls.
bool give_up_in_this_thread(bool capabilities) noexcept {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
    if (!capabilities) return true;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    return syscall(SYS_capset, &header, none) == 0;  // what is not permitted is not ambient either
}

std::atomic<bool> told_capabilities;
std::atomic<int> done_threads, failed_threads;

void on_signal(int) {
    const int before = errno;
    (give_up_in_this_thread(told_capabilities) ? done_threads : failed_threads).fetch_add(1);
    errno = before;
}

// Libraries may have started threads (numpy's linear algebra does): a signal makes each of them do the same.
void give_up_in_other_threads(bool capabilities) {
    const int number = SIGRTMIN + 5;
    struct sigaction action{}, before{};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    if (sigaction(number, &action, &before) != 0) fail("cannot reach the other threads");
    told_capabilities = capabilities;
    done_threads = failed_threads = 0;
    int told = 0;
    const auto self = static_cast<pid_t>(syscall(SYS_gettid));
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        const pid_t thread = std::stoi(task.path().filename().string());
        if (thread != self && syscall(SYS_tgkill, getpid(), thread, number) == 0) ++told;
    }
    for (int waited_ms = 0; done_threads + failed_threads < told && waited_ms < 2000; ++waited_ms)
        usleep(1000);
    if (done_threads != told) {
        errno = EPERM;
        fail("a thread keeps its privileges");
    }
    sigaction(number, &before, nullptr);
}

}  // namespace

void drop_privileges(const std::string& user) {
    const bool root = geteuid() == 0;
    const bool capabilities = !root || user != "root";
    if (root && user != "root") become(user);
    if (!give_up_in_this_thread(capabilities)) fail("cannot give up privileges");
    give_up_in_other_threads(capabilities);
}

}  // namespace tapscope
