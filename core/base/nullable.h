/* nullable.h: marks pointers that may be NULL. `mp_stream *MP_NULLABLE stream` as a member, parameter, variable or
 * result: each use needs a check on its way. `./dev lint` finds a missing one with clang's analyzer, which takes every
 * pointer without the mark for never NULL. */
#ifndef MP_BASE_NULLABLE_H
#define MP_BASE_NULLABLE_H

/* Marks a parameter that a function does not read: only the type of a function pointer demands it. */
#define MP_UNUSED __attribute__((unused))

#ifdef __clang__
#define MP_NULLABLE _Nullable
#define MP_NONNULL _Nonnull
/* A header need not mark every pointer: the others are never NULL. */
#pragma clang diagnostic ignored "-Wnullability-completeness"
#else
#define MP_NULLABLE
#define MP_NONNULL
#endif

/* NULL as the value of a pointer without the mark: its memory was freed, and it is set before it is read again; or it
 * is an array whose count is 0. */
#define MP_UNSET ((void *MP_NONNULL)0)

/* Yields a pointer that has the mark because it is NULL at other times, where it cannot be NULL; a comment beside the
 * use says why. If it is NULL after all, the process ends here. Not for code that runs for each call: there a check
 * leads to a way out. */
#define MP_NEVER_NULL(pointer)                                                                                         \
    ({                                                                                                                 \
        __auto_type never_null_ = (pointer);                                                                           \
        if (never_null_ == 0)                                                                                          \
            __builtin_trap();                                                                                          \
        never_null_;                                                                                                   \
    })

#endif
