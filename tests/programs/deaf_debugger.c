/* In the place of gdb: "deaf_debugger … PID" attaches to a process, says so, and waits in the kernel for a child (vfork)
   that is in no group of its, where it hears no signal but SIGKILL. The child ends with it. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

int main(int count, char **words) {
    pid_t process = atoi(words[count - 1]);
    if (ptrace(PTRACE_ATTACH, process, 0, 0) || waitpid(process, NULL, __WALL) != process)
        return 1;
    fprintf(stderr, "gdbheap: gdb is ready\n");
    pid_t child = vfork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();
        for (;;)
            pause();
    }
    return 0;
}
