/* profile.c: what a thread gathers for the profiler. A sample is a phase, a call's method and tool, and the lines of at
 * most 64 frames. Equal samples are counted in one place of a block of fixed size, so a sample allocates nothing, and
 * one that finds no place is counted as lost.
 *
 * The signal handler takes samples of C by itself. It must not look at Lua's state: it only marks the sample as due,
 * and sets a count hook, which takes the sample at the next instruction. Time in a long C function counts for the line
 * that called it.
 *
 * One file, because the handler, the hook and the allocator share the thread's variables. */
#include "vm/profile.h"
#include "vm/preempt.h"

MP_COUNTER(profile_taken, "profile_samples", "result", "taken", "samples of profiles")
MP_COUNTER(profile_lost, "profile_samples", "result", "lost", "samples of which 1 MiB of stacks has none")

#define MAX_FRAMES 64
#define MAX_COROUTINES 16 /* nested coroutines whose frames are walked */
#define MAX_TEXT_BYTES 120
#define MAX_STEPS 32            /* places that are tried for one text or stack */
#define MEMORY_STEP (512 << 10) /* bytes allocated for one sample of memory */
#define LINE_BITS 20            /* bits of the line in a frame's number; the other bits are the index of its text */
#define MAX_LINE ((1u << LINE_BITS) - 1)
#define MAX_TEXTS (1u << (32 - LINE_BITS))
#define PLACE_BYTES 256 /* of the block: one stack has this many, with its frames and its part of the texts */
#define OTHER 0         /* the text of names that found no place */

typedef struct {
    uint32_t hash, at, len; /* len 0: the place is free */
} text_place;

typedef struct {
    uint32_t hash, first; /* `first`: of mp_profile.frames */
    uint32_t count;       /* 0: the place is free */
    uint16_t depth;
    uint8_t phase;
} stack_place;

struct mp_profile {
    atomic_int refs;
    atomic_bool is_over;
    _Atomic uint64_t taken, lost;
    mp_profile_options options;
    bool has_timer;
    int64_t until; /* bytes that may be allocated before the next sample of memory */
    uint64_t in_c[MP_PHASES];
    text_place *texts;
    stack_place *stacks;
    uint32_t *frames; /* text << LINE_BITS | line, outermost first */
    char *bytes;      /* the bytes of all texts */
    uint32_t text_mask, stack_mask, frame_count, frame_room, byte_count, byte_room;
};

/* Per thread: the signal handler and the code that it interrupts use these variables. */
static __thread mp_profile *volatile MP_NULLABLE here;
static __thread lua_State *volatile due_in; /* the Lua state that ran when the first sample that is due was marked */
__thread volatile unsigned mp_profile_due;

/* -- texts and stacks ---------------------------------------------------------------------------------------------- */

static uint32_t hash_of(const void *data, size_t len)
{
    const unsigned char *bytes = data;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

/* The number of a text, of which the last MAX_TEXT_BYTES are kept. */
static uint32_t number_of(mp_profile *p, mp_str text)
{
    if (text.len > MAX_TEXT_BYTES)
        text = mp_str_from(text, text.len - MAX_TEXT_BYTES);
    uint32_t hash = hash_of(text.ptr, text.len);
    for (uint32_t i = 0; i < MAX_STEPS && text.len > 0; i++) {
        uint32_t n = (hash + i) & p->text_mask;
        text_place *place = &p->texts[n];
        if (n == OTHER)
            continue;
        if (place->len == 0) {
            if (text.len > p->byte_room - p->byte_count)
                return OTHER;
            *place = (text_place){hash, p->byte_count, (uint32_t)text.len};
            memcpy(p->bytes + p->byte_count, text.ptr, text.len);
            p->byte_count += (uint32_t)text.len;
            return n;
        }
        if (place->hash == hash && mp_str_eq(text, (mp_str){p->bytes + place->at, place->len}))
            return n;
    }
    return OTHER;
}

static void count_lost(mp_profile *p, uint32_t count)
{
    atomic_fetch_add_explicit(&p->lost, count, memory_order_relaxed);
}

static void count_taken(mp_profile *p, uint32_t count)
{
    atomic_fetch_add_explicit(&p->taken, count, memory_order_relaxed);
}

/* Counts `count` samples of the stack `frames`, outermost first. */
static void add_stack(mp_profile *p, mp_phase phase, const uint32_t *frames, size_t depth, uint32_t count)
{
    uint32_t hash = hash_of(frames, depth * sizeof *frames) + (uint32_t)phase * 2654435761u;
    for (uint32_t i = 0; i < MAX_STEPS; i++) {
        stack_place *place = &p->stacks[(hash + i) & p->stack_mask];
        if (place->count == 0) {
            if (depth > p->frame_room - p->frame_count)
                break;
            *place = (stack_place){hash, p->frame_count, count, (uint16_t)depth, (uint8_t)phase};
            memcpy(p->frames + p->frame_count, frames, depth * sizeof *frames);
            p->frame_count += (uint32_t)depth;
            count_taken(p, count);
            return;
        }
        if (place->hash == hash && place->depth == depth && place->phase == phase &&
            memcmp(p->frames + place->first, frames, depth * sizeof *frames) == 0) {
            place->count += count;
            count_taken(p, count);
            return;
        }
    }
    count_lost(p, count);
}

/* -- walking ------------------------------------------------------------------------------------------------------- */

/* The phase of frames in files of lua/moonpool: the innermost frame that has a row decides. */
static const struct {
    const char *path;
    mp_phase phase;
} parts[] = {
    {"lua/moonpool/things/policy", MP_PHASE_POLICY},
    {"lua/moonpool/things/limit", MP_PHASE_POLICY},
    {"lua/moonpool/calls/", MP_PHASE_HANDLER},
    {"lua/moonpool/things/arguments", MP_PHASE_VALIDATE},
    {"lua/moonpool/schema/", MP_PHASE_VALIDATE},
    {"lua/moonpool/access/", MP_PHASE_AUTH},
    {"lua/moonpool/things/tool_result", MP_PHASE_ENCODE},
};

static bool phase_of(mp_str source, mp_phase *phase)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (mp_str_starts(source, mp_str_of(parts[i].path))) {
            *phase = parts[i].phase;
            return true;
        }
    return false;
}

typedef struct {
    mp_profile *profile;
    uint32_t frames[MAX_FRAMES + 1]; /* innermost first; the last one is the call's */
    size_t depth;
    mp_phase phase;
    bool has_phase, has_script;
} walk;

static void walk_frames(walk *w, lua_State *L)
{
    lua_Debug at;
    for (int level = 0; w->depth < MAX_FRAMES && lua_getstack(L, level, &at) != 0; level++) {
        lua_getinfo(L, "Sl", &at);
        if (at.currentline <= 0)
            continue; /* a C function */
        mp_str source = {at.source, at.srclen};
        bool is_file = source.len > 0 && (*source.ptr == '@' || *source.ptr == '=');
        source = is_file ? mp_str_from(source, 1) : MP_STR("(a text)");
        bool is_own = mp_str_starts(source, MP_STR("lua/moonpool/"));
        if (is_own && !w->has_phase)
            w->has_phase = phase_of(source, &w->phase);
        w->has_script = w->has_script || !is_own;
        uint32_t line = (uint32_t)at.currentline < MAX_LINE ? (uint32_t)at.currentline : MAX_LINE;
        w->frames[w->depth++] = number_of(w->profile, source) << LINE_BITS | line;
    }
}

/* The coroutine that `L` has resumed and waits for; NULL if it is unknown. coroutine.resume and coroutine.close have it
 * at index 1, a function of coroutine.wrap as its upvalue.  [-0, +0] */
static lua_State *MP_NULLABLE resumed_by(lua_State *L)
{
    lua_Debug at;
    if (lua_getstack(L, 0, &at) == 0)
        return NULL;
    int top = lua_gettop(L);
    lua_State *found = lua_getlocal(L, &at, 1) != NULL ? lua_tothread(L, -1) : NULL;
    if (found == NULL && lua_getinfo(L, "f", &at) != 0 && lua_getupvalue(L, -1, 1) != NULL)
        found = lua_tothread(L, -1);
    lua_settop(L, top);
    return found;
}

/* Walks the frames of `L`, then those of the coroutines around it, out to the task's own. */
static void walk_coroutines(walk *w, lua_State *L, const mp_task *MP_NULLABLE task)
{
    lua_State *outer[MAX_COROUTINES];
    size_t count = 0;
    walk_frames(w, L);
    if (task == NULL || mp_own(task)->co == NULL)
        return;
    for (lua_State *co = mp_own(task)->co; co != NULL && co != L && count < MAX_COROUTINES; co = resumed_by(co))
        outer[count++] = co;
    while (count > 0)
        walk_frames(w, outer[--count]);
}

/* "tools/call search", of a task that serves a call; the name of a thing that no script has is left out: clients can
 * invent those. */
static mp_str name_call(const mp_task *task, bool has_script, char *room, size_t size, mp_str *subject)
{
    mp_str method = mp_task_label(task);
    *subject = MP_STR_NONE;
    if (has_script && task->payer->work->subject != NULL)
        *subject = task->payer->work->subject(task->payer);
    int len = snprintf(room, size, "%.*s%s%.*s", (int)(method.len < 64 ? method.len : 64), method.ptr,
                       subject->len > 0 ? " " : "", (int)(subject->len < 128 ? subject->len : 128),
                       subject->len > 0 ? subject->ptr : "");
    return (mp_str){room, len < 0 ? 0 : (size_t)len < size ? (size_t)len : size - 1};
}

static void take_stack(mp_profile *p, lua_State *L, uint32_t count)
{
    const mp_vm *vm = mp_vm_of(L);
    const mp_task *task = vm->state.running;
    walk w = {.profile = p, .phase = (mp_phase)mp_phase_here};
    if (vm->garbage.is_collecting)
        w.phase = MP_PHASE_GC;
    w.has_phase = w.phase != MP_PHASE_HANDLER;
    walk_coroutines(&w, L, task);
    char room[256];
    mp_str subject = MP_STR_NONE, name = MP_STR_NONE;
    if (task != NULL)
        name = name_call(task, w.has_script, room, sizeof room, &subject);
    if (*p->options.tool != '\0' && !mp_pattern_matches(p->options.tool, subject))
        return;
    if (name.len > 0)
        w.frames[w.depth++] = number_of(p, name) << LINE_BITS;
    uint32_t frames[MAX_FRAMES + 1];
    for (size_t i = 0; i < w.depth; i++)
        frames[i] = w.frames[w.depth - 1 - i];
    add_stack(p, w.phase, frames, w.depth, count);
}

/* -- samples ------------------------------------------------------------------------------------------------------- */

static void hook(lua_State *L, MP_UNUSED lua_Debug *at)
{
    lua_sethook(L, NULL, 0, 0);
    mp_profile_take(L);
}

/* Samples in C have no tool, so a profile of one tool does without them. */
static void count_in_c(mp_profile *p, unsigned phase, uint32_t count)
{
    if (*p->options.tool != '\0')
        return;
    p->in_c[phase < MP_PHASES ? phase : MP_PHASE_READ] += count;
    count_taken(p, count);
}

/* Counts `count` samples for the current phase; in a handler, a hook takes them at the next instruction of Lua. In the
 * signal handler, or where the Lua state of `running` allocates. */
static void mark_phase(mp_profile *p, lua_State *MP_NULLABLE running, uint32_t count)
{
    unsigned phase = mp_phase_here;
    if (mp_profile_due > 0 && (due_in != running || phase != MP_PHASE_HANDLER)) {
        count_in_c(p, MP_PHASE_HANDLER, mp_profile_due); /* Lua has ended without another instruction */
        mp_profile_due = 0;
    }
    if (running != NULL && mp_vm_of(running)->garbage.is_collecting)
        phase = MP_PHASE_GC;
    if (running == NULL || phase != MP_PHASE_HANDLER) {
        count_in_c(p, phase, count);
        return;
    }
    due_in = running;
    mp_profile_due += count;
    if (lua_gethook(running) == NULL) /* a hook that is set already takes the sample, too */
        lua_sethook(running, hook, LUA_MASKCOUNT, 1);
}

/* Takes a tick of the profile's timer. In the signal handler. */
static void tick_running(lua_State *running)
{
    if (here != NULL)
        mark_phase(here, running, 1);
}

/* Takes the time of a sample out of what tasks and scripts have used: `us` by the monotonic clock, which goes on while
 * the thread waits for its processor, and `cpu_us` of processor time. A light task is charged by the clock that shows
 * less, so no more than that is subtracted from its use. */
static void excuse_time(mp_vm *vm, uint64_t us, uint64_t cpu_us)
{
    mp_task *task = vm->state.running;
    if (task != NULL)
        mp_own(task->payer)->spent_us -= mp_own(task)->is_heavy || cpu_us < us ? cpu_us : us;
    if (vm->clock.guard_until != 0)
        vm->clock.guard_until += cpu_us;
    if (vm->state.is_loading)
        vm->loading.until += cpu_us;
    if (vm->clock.stuck_at != 0)
        vm->clock.stuck_at += cpu_us;
    vm->closing.since += cpu_us;
}

void mp_profile_take(lua_State *L)
{
    unsigned count = __atomic_exchange_n(&mp_profile_due, 0, __ATOMIC_RELAXED);
    mp_profile *p = here;
    if (count == 0 || p == NULL)
        return;
    uint64_t began = mp_clock_us(CLOCK_MONOTONIC), cpu_began = mp_clock_us(CLOCK_THREAD_CPUTIME_ID);
    take_stack(p, L, count);
    excuse_time(mp_vm_of(L), mp_clock_us(CLOCK_MONOTONIC) - began, mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - cpu_began);
}

/* The allocator of a VM while its thread samples memory. It puts mp_vm_allocate back when that is over. */
static void *MP_NULLABLE allocate_measured(void *ctx, void *MP_NULLABLE old, size_t old_size, size_t size)
{
    mp_vm *vm = ctx;
    mp_profile *p = here;
    size_t before = old == NULL ? 0 : old_size;
    void *block = mp_vm_allocate(ctx, old, old_size, size);
    if (p == NULL || !p->options.memory) {
        lua_setallocf(vm->state.L, mp_vm_allocate, vm);
        return block;
    }
    if (block == NULL || size <= before)
        return block;
    p->until -= (int64_t)(size - before);
    if (p->until < 0) {
        uint32_t steps = (uint32_t)(-p->until / MEMORY_STEP) + 1;
        p->until += (int64_t)steps * MEMORY_STEP;
        mark_phase(p, mp_preempt_running(), steps);
    }
    return block;
}

void mp_vm_sample_memory(mp_vm *vm)
{
    if (here != NULL && here->options.memory)
        lua_setallocf(vm->state.L, allocate_measured, vm);
}

/* -- a profile ----------------------------------------------------------------------------------------------------- */

static uint32_t power_below(size_t n)
{
    uint32_t power = 1;
    while ((size_t)power * 2 <= n && power < 1u << 30)
        power *= 2;
    return power;
}

mp_profile *mp_profile_new(const mp_profile_options *options, size_t bytes)
{
    mp_profile *p = mp_new(sizeof *p);
    size_t places = bytes / PLACE_BYTES;
    uint32_t texts = power_below(places / 2 < MAX_TEXTS ? places / 2 : MAX_TEXTS), stacks = power_below(places);
    p->options = *options;
    p->until = MEMORY_STEP;
    p->text_mask = texts - 1;
    p->stack_mask = stacks - 1;
    p->texts = mp_new(texts * sizeof *p->texts);
    p->stacks = mp_new(stacks * sizeof *p->stacks);
    p->byte_room = (uint32_t)(places * 64);
    p->frame_room = (uint32_t)(places * 40);
    p->bytes = mp_new(p->byte_room);
    p->frames = mp_new(p->frame_room * sizeof *p->frames);
    atomic_init(&p->refs, 1);
    return p;
}

mp_profile *mp_profile_ref(mp_profile *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

void mp_profile_unref(mp_profile *MP_NULLABLE p)
{
    if (p == NULL || atomic_fetch_sub(&p->refs, 1) != 1)
        return;
    free(p->texts);
    free(p->stacks);
    free(p->bytes);
    free(p->frames);
    free(p);
}

bool mp_profile_begin(mp_profile *p)
{
    mp_profile_end();
    mp_profile_due = 0;
    here = mp_profile_ref(p);
    if (p->options.memory || mp_preempt_sample(p->options.hz, tick_running))
        return true;
    mp_profile_end();
    return false;
}

void mp_profile_end(void)
{
    mp_profile *p = here;
    if (p == NULL)
        return;
    mp_preempt_sample(0, tick_running);
    here = NULL;
    mp_stat_add(&mp_stat_profile_taken, (int64_t)atomic_load(&p->taken));
    mp_stat_add(&mp_stat_profile_lost, (int64_t)atomic_load(&p->lost));
    atomic_store(&p->is_over, true);
    mp_profile_unref(p);
}

bool mp_profile_is_over(const mp_profile *p)
{
    return atomic_load(&p->is_over);
}

mp_profile_totals mp_profile_count(const mp_profile *p)
{
    return (mp_profile_totals){atomic_load_explicit(&p->taken, memory_order_relaxed),
                               atomic_load_explicit(&p->lost, memory_order_relaxed)};
}

static mp_str text_of(const mp_profile *p, uint32_t number)
{
    const text_place *place = &p->texts[number];
    return number == OTHER ? MP_STR("(other)") : (mp_str){p->bytes + place->at, place->len};
}

size_t mp_profile_read(const mp_profile *p, size_t at, mp_profile_stack *stack)
{
    for (; at < MP_PHASES; at++)
        if (p->in_c[at] > 0) {
            *stack = (mp_profile_stack){(mp_phase)at, p->in_c[at], 0, p, NULL};
            return at + 1;
        }
    for (; at <= MP_PHASES + (size_t)p->stack_mask; at++) {
        const stack_place *place = &p->stacks[at - MP_PHASES];
        if (place->count > 0) {
            *stack =
                (mp_profile_stack){(mp_phase)place->phase, place->count, place->depth, p, p->frames + place->first};
            return at + 1;
        }
    }
    return 0;
}

mp_str mp_profile_frame(const mp_profile_stack *stack, size_t i, unsigned *line)
{
    *line = stack->frames[i] & MAX_LINE;
    return text_of(stack->profile, stack->frames[i] >> LINE_BITS);
}
