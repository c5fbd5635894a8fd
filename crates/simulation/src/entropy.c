// Random bytes of the operating system, by which std, uuid and tokio seed themselves. A thread that
// simulates gets them from its seed, so that it does the same in each run: its name is "sim:" and the
// seed. All other threads get them from the system.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static __thread int is_simulated = -1;
static __thread uint64_t state;

static int begin(void) {
    char name[16];
    if (pthread_getname_np(pthread_self(), name, sizeof name) || strncmp(name, "sim:", 4)) return 0;
    for (const char *at = name + 4; *at; at++) state = state * 31 + (unsigned char)*at;
    return 1;
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags) {
    if (is_simulated < 0) is_simulated = begin();
    if (!is_simulated) return syscall(SYS_getrandom, buffer, length, flags);
    for (size_t at = 0; at < length; at++) {
        // splitmix64
        uint64_t mixed = state += 0x9e3779b97f4a7c15u;
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
        ((unsigned char *)buffer)[at] = (unsigned char)(mixed ^ (mixed >> 31));
    }
    return (ssize_t)length;
}
