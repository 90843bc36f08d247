/* A clock of the day that is wrong, for the processes that preload it.
 *
 * The file that $CHAOS_CLOCK names has the error in seconds, as eight bytes. What counts the time
 * that passes, as clocks with other ids do, stays right. libfaketime is not used: with it, Python's
 * time.sleep fails as soon as the error changes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t none = 0;
static volatile const int64_t *error_seconds = &none;
static long (*real_syscall)(long, ...);
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED) error_seconds = map;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    /* Other libraries' constructors may come first. */
    if (!real_gettime) real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real_gettime(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *error_seconds;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}

/* Abseil waits until a time of the day, which only the kernel knows right. */
long syscall(long number, ...) {
    long given[6];
    va_list list;
    va_start(list, number);
    for (int each = 0; each < 6; ++each) given[each] = va_arg(list, long);
    va_end(list);
    struct timespec until;
    if (number == SYS_futex && (given[1] & FUTEX_CLOCK_REALTIME) && given[3]) {
        until = *(struct timespec *)given[3];
        until.tv_sec -= *error_seconds;
        given[3] = (long)&until;
    }
    if (!real_syscall) real_syscall = dlsym(RTLD_NEXT, "syscall");
    return real_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
