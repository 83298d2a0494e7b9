/* crash.c: see crash.h. */
#define _GNU_SOURCE
#include "crash.h"
#include "log.h"
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <moonpool/version.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

/* size of the signal handler's stack: a signal frame has up to 12 kB, and a crash in the handler adds another one */
#define STACK_BYTES 65536
#define MAX_FRAMES 32  /* enough to pass libc, libraries and the interpreter of Lua */
#define MAX_TEXT 128   /* bytes of a text in a field */
#define MAX_ID 20      /* bytes of a build id that are shown: SHA-1 */
#define BEHIND_MS 100  /* how long the handler waits for the log's thread to write the lines before this one */
#define READER_MS 1000 /* how long it waits for the reader of a full pipe */
#define GIVE_UP_S 4    /* seconds after which the process ends without the line */
#define LEFT_FOR_END 2 /* bytes of `text` for the end of the line */
#define MAX_PLACE 256  /* bytes of a place in code, at most */

static const struct {
    int number;
    const char *name;
} fatal[] = {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"}, {SIGFPE, "SIGFPE"}, {SIGABRT, "SIGABRT"}};
#define FATAL (sizeof fatal / sizeof *fatal)

static __thread char thread_name[16]; /* the kernel's names have 15 characters */
static pthread_key_t at_thread_end;
static pid_t process; /* 0: not started */
static char build_id[2 * MAX_ID + 1];
static void (*work)(void);

/* The crash. Only the thread that crashed first uses it. */
static struct {
    _Atomic pid_t thread; /* 0: none has crashed */
    int signal;
    siginfo_t info;
    uintptr_t pc, sp;        /* 0: not known on this processor */
    const uintptr_t *caller; /* where a function that has just been called finds its return address */
    mp_log_view log;
    atomic_int step;     /* index in `steps` of the next step */
    int frames;          /* places that put_frames has put, including that of the crash */
    size_t len, done;    /* bytes of `text`; those of whole fields */
    char text[PIPE_BUF]; /* a pipe takes as much in one piece */
} crash;

/* -- text ---------------------------------------------------------------------------------------------------------- */

static void put_char(char c)
{
    if (crash.len < sizeof crash.text - LEFT_FOR_END)
        crash.text[crash.len++] = c;
}

static void put_text(const char *text)
{
    while (*text != '\0')
        put_char(*text++);
}

static void put_number(int64_t number, unsigned base)
{
    char digits[24];
    size_t count = 0;
    uint64_t rest = number < 0 && base == 10 ? 0 - (uint64_t)number : (uint64_t)number;
    do
        digits[count++] = "0123456789abcdef"[rest % base];
    while ((rest /= base) > 0);
    if (number < 0 && base == 10)
        put_char('-');
    while (count > 0)
        put_char(digits[--count]);
}

static void put_hex(uintptr_t number)
{
    put_text("0x");
    put_number((int64_t)number, 16);
}

/* Appends the characters of `text` that are valid in a log line of either format. */
static void put_plain(mp_str text)
{
    for (size_t i = 0; i < text.len && i < MAX_TEXT; i++) {
        char c = text.ptr[i];
        put_char(c >= ' ' && c <= '~' && c != '"' && c != '\\' ? c : '?');
    }
}

static void begin_field(const char *key)
{
    put_text(crash.log.is_json ? ",\"" : " ");
    put_text(key);
    put_text(crash.log.is_json ? "\":" : "=");
}

/* The field is whole: a crash within the handler leaves it in the line. One that did not fit is dropped. */
static void end_field(void)
{
    if (crash.len < sizeof crash.text - LEFT_FOR_END)
        crash.done = crash.len;
    crash.len = crash.done;
}

static void put_integer(const char *key, int64_t number)
{
    begin_field(key);
    put_number(number, 10);
    end_field();
}

/* Writes the quote before or after a text: JSON always has quotes, logfmt only around blanks. */
static void quote_text(bool has_blanks)
{
    if (has_blanks || crash.log.is_json)
        put_char('"');
}

static bool has_blanks(mp_str text)
{
    return text.len == 0 || memchr(text.ptr, ' ', text.len) != NULL || memchr(text.ptr, '=', text.len) != NULL;
}

void mp_crash_put(const char *key, mp_str text)
{
    begin_field(key);
    quote_text(has_blanks(text));
    put_plain(text);
    quote_text(has_blanks(text));
    end_field();
}

void mp_crash_put_place(const char *key, mp_str file, int line)
{
    begin_field(key);
    quote_text(has_blanks(file));
    put_plain(file);
    put_char(':');
    put_number(line, 10);
    quote_text(has_blanks(file));
    end_field();
}

/* -- places in code ------------------------------------------------------------------------------------------------ */

static void put_code(uintptr_t at)
{
    struct dl_find_object found;
    if (_dl_find_object((void *)at, &found) != 0) { /* the one look-up of glibc that signal handlers may use */
        put_text("unknown+");
        put_hex(at);
        return;
    }
    const char *name = found.dlfo_link_map->l_name, *slash = strrchr(name, '/');
    if (*name != '\0') { /* the binary itself has none */
        put_plain(mp_str_of(slash == NULL ? name : slash + 1));
        put_char('+');
    }
    put_hex(at - found.dlfo_link_map->l_addr);
}

/* Appends a frame. The field is complete after each frame, since the unwinder may crash at the next one. */
static void put_frame(uintptr_t at)
{
    if (crash.frames++ == 0) {
        begin_field("frames");
        put_char('"');
    } else {
        crash.text[crash.len - 1] = ' '; /* overwrites the quote that ended the last frame */
    }
    put_code(at);
    put_char('"');
    end_field();
}

/* Frames of the handler come first, up to the place of the crash, which has a field of its own. */
static _Unwind_Reason_Code on_frame(struct _Unwind_Context *frame, void *is_past)
{
    int is_exact = 0;
    uintptr_t at = _Unwind_GetIPInfo(frame, &is_exact);
    bool *past = is_past;
    if (*past && at != 0)
        put_frame(is_exact ? at : at - 1); /* a return address: one byte before it is in the call */
    *past = *past || at == crash.pc;
    bool is_enough = crash.frames == MAX_FRAMES || crash.len > sizeof crash.text - MAX_PLACE;
    return is_enough ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

/* -- the line ------------------------------------------------------------------------------------------------------ */

static void put_head(void)
{
    if (crash.log.is_json)
        put_text("{\"time\":\"");
    if (crash.log.is_json || !crash.log.is_journal) {
        mp_buf time = {.ptr = crash.text + crash.len,
                       .cap = 64}; /* more than a time has, so that nothing is allocated */
        mp_log_put_time(&time);
        crash.len += time.len;
    }
    if (crash.log.is_json)
        put_text("\",\"level\":\"error\",\"event\":\"crashed\"");
    else
        put_text(crash.log.is_journal ? "<3>crashed" : " error crashed         ");
    end_field();
}

static void put_facts(void)
{
    put_integer("signal", crash.signal);
    for (size_t i = 0; i < FATAL; i++)
        if (fatal[i].number == crash.signal)
            mp_crash_put("why", mp_str_of(fatal[i].name));
    put_integer("code", crash.info.si_code);
    if (crash.info.si_code > 0) {
        begin_field("address");
        quote_text(false);
        put_hex((uintptr_t)crash.info.si_addr);
        quote_text(false);
        end_field();
    } else { /* the signal came from kill() or abort() */
        put_integer("sender", crash.info.si_pid);
    }
    mp_crash_put("thread", mp_str_of(thread_name[0] == '\0' ? "unknown" : thread_name));
    mp_crash_put("version", MP_STR(MOONPOOL_VERSION));
    mp_crash_put("build", mp_str_of(build_id));
    if (crash.sp == 0)
        return;
    begin_field("pc");
    quote_text(false);
    put_code(crash.pc);
    quote_text(false);
    end_field();
}

static void put_work(void)
{
    if (work != NULL)
        work();
}

static void put_frames(void)
{
    bool is_past = crash.sp == 0;
    _Unwind_Backtrace(on_frame, &is_past);
}

/* A call of a function that is nowhere has no frame to begin with, only an address to return to. */
static void put_caller(void)
{
    if (crash.frames == 0 && crash.caller != NULL)
        put_frame(*crash.caller - 1);
}

static void write_to(int fd, size_t from)
{
    struct pollfd out = {.fd = fd, .events = POLLOUT};
    while (from < crash.len && poll(&out, 1, READER_MS) == 1) {
        ssize_t n = write(fd, crash.text + from, crash.len - from);
        if (n <= 0)
            return;
        from += (size_t)n;
    }
}

static void write_line(void)
{
    if (crash.log.is_json)
        crash.text[crash.len++] = '}';
    crash.text[crash.len++] = '\n';
    for (int ms = 0; mp_log_look().is_behind && ms < BEHIND_MS; ms += 5)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    mp_log_view log = mp_log_look();
    write_to(log.fd, log.is_behind || log.is_torn ? 0 : 1); /* the newline before the line ends one that is not whole */
    if (log.fd != STDERR_FILENO)
        write_to(STDERR_FILENO, 1);
}

/* the parts of the line; those that can hardly fail are first */
static void (*const steps[])(void) = {put_head, put_facts, put_work, put_frames, put_caller, write_line};
#define STEPS ((int)(sizeof steps / sizeof *steps))

/* -- the handler --------------------------------------------------------------------------------------------------- */

static void note_crash(int number, const siginfo_t *info, MP_UNUSED const ucontext_t *context)
{
    crash.signal = number;
    crash.info = *info;
    crash.log = mp_log_look();
    crash.text[0] = '\n';
    crash.len = crash.done = 1;
#if defined(__x86_64__)
    crash.pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    crash.sp = (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
    crash.caller = (const uintptr_t *)crash.sp;
#elif defined(__aarch64__)
    crash.pc = (uintptr_t)context->uc_mcontext.pc;
    crash.sp = (uintptr_t)context->uc_mcontext.sp;
    crash.caller = (const uintptr_t *)&context->uc_mcontext.regs[30];
#else
#endif
}

/* The signals have their default actions from now on. The first process of a container gets no signal with such an
 * action, but faults end it. */
static void restore_actions(void)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    for (size_t i = 0; i < FATAL; i++)
        sigaction(fatal[i].number, &plain, NULL);
    if (process == 1 && crash.info.si_code <= 0)
        __builtin_trap();
}

/* Sends the signal again, as it was, and blocked: the process ends when the handler has returned, where it crashed, as
 * a debugger wants it. */
static void send_again(void)
{
    sigset_t this;
    sigemptyset(&this);
    sigaddset(&this, crash.signal);
    restore_actions();
    pthread_sigmask(SIG_BLOCK, &this, NULL);
    if (syscall(SYS_rt_tgsigqueueinfo, process, gettid(), crash.signal, &crash.info) != 0)
        raise(crash.signal);
}

/* The handler hangs, on any thread: ends the process. */
static void on_late(MP_UNUSED int number)
{
    restore_actions();
    signal(crash.signal, SIG_DFL);
    sigset_t this;
    sigemptyset(&this);
    sigaddset(&this, crash.signal);
    pthread_sigmask(SIG_UNBLOCK, &this, NULL);
    raise(crash.signal);
    _exit(128 + crash.signal);
}

/* Handles a fatal signal. If a step crashes, the handler runs again on top of itself, and continues with the next step.
 */
static void on_crash(int number, siginfo_t *info, void *context)
{
    pid_t none = 0, self = gettid();
    if (getpid() != process) { /* a child before it runs another program */
        restore_actions();
        raise(number);
        return;
    }
    if (atomic_compare_exchange_strong(&crash.thread, &none, self)) {
        signal(SIGALRM, on_late);
        alarm(GIVE_UP_S);
        note_crash(number, info, context);
    } else if (none != self) {
        for (;;) /* another thread's crash ends the process */
            poll(NULL, 0, 1000);
    }
    for (int step; (step = atomic_fetch_add(&crash.step, 1)) < STEPS;) {
        crash.len = crash.done;
        steps[step]();
    }
    send_again();
}

/* -- threads ------------------------------------------------------------------------------------------------------- */

static void leave_thread(void *stack)
{
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    munmap(stack, STACK_BYTES);
}

/* A thread that has such a stack already, from a sanitizer, keeps it. The pages cost memory only when they are used. */
static void make_stack(void)
{
    stack_t before, made = {.ss_size = STACK_BYTES};
    if (sigaltstack(NULL, &before) != 0 || (before.ss_flags & SS_DISABLE) == 0)
        return;
    made.ss_sp = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made.ss_sp == MAP_FAILED)
        return;
    sigaltstack(&made, NULL);
    pthread_setspecific(at_thread_end, made.ss_sp);
}

void mp_crash_thread(const char *name, int number)
{
    if (process == 0)
        return;
    snprintf(thread_name, sizeof thread_name, number == 0 ? "%s" : "%s %d", name, number);
    if (gettid() != process) /* otherwise ps would show another name for the process */
        prctl(PR_SET_NAME, thread_name);
    make_stack();
    sigset_t all;
    sigemptyset(&all);
    for (size_t i = 0; i < FATAL; i++)
        sigaddset(&all, fatal[i].number);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL); /* a fault ends a thread that blocks its signal without the handler */
}

/* The build id is a note of the linker in the binary. */
static void find_build_id(void)
{
    struct dl_find_object self;
    if (_dl_find_object((void *)(uintptr_t)mp_crash_start, &self) != 0)
        return;
    uintptr_t base = self.dlfo_link_map->l_addr;
    const ElfW(Ehdr) *head = (const void *)base;
    const ElfW(Phdr) *part = (const void *)(base + head->e_phoff);
    for (size_t i = 0; i < head->e_phnum; i++) {
        uintptr_t at = base + part[i].p_vaddr, end = at + part[i].p_memsz;
        while (part[i].p_type == PT_NOTE && at < end) {
            const ElfW(Nhdr) *note = (const void *)at;
            const unsigned char *bytes = (const unsigned char *)(note + 1) + ((note->n_namesz + 3) & ~3u);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_descsz <= MAX_ID)
                *mp_hex_put(build_id, bytes, note->n_descsz) = '\0';
            at = (uintptr_t)bytes + ((note->n_descsz + 3) & ~3u);
        }
    }
}

static _Unwind_Reason_Code stop_at_once(struct _Unwind_Context *frame, void *unused)
{
    (void)frame, (void)unused;
    return _URC_NORMAL_STOP;
}

void mp_crash_start(void)
{
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER}, before;
    sigfillset(&action.sa_mask);
    sigdelset(&action.sa_mask, SIGALRM); /* on_late() */
    for (size_t i = 0; i < FATAL; i++)
        sigdelset(&action.sa_mask, fatal[i].number); /* a crash of the handler */
    process = getpid();
    pthread_key_create(&at_thread_end, leave_thread);
    find_build_id();
    mp_crash_thread("main", 0);
    _Unwind_Backtrace(stop_at_once, NULL); /* prepares the unwinder, which allocates memory when it is first used */
    for (size_t i = 0; i < FATAL; i++)
        if (sigaction(fatal[i].number, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(fatal[i].number, &action, NULL);
}

void mp_crash_set_work(void (*put_fields)(void))
{
    work = put_fields;
}
