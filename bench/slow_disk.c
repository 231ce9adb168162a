/* Simulates a slow disk. In a program that is started with this library, every fsync and fdatasync waits first.
 *
 *   cc -shared -fPIC -O2 -o slow_disk.so bench/slow_disk.c -ldl
 *   SLOW_DISK_US=2000 LD_PRELOAD=$PWD/slow_disk.so PROGRAM
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void wait_a_little(void) {
    const char *us = getenv("SLOW_DISK_US");
    long ns = us ? atol(us) * 1000 : 0;
    struct timespec span = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&span, NULL);
}

int fsync(int fd) {
    wait_a_little();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
    wait_a_little();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
