/* nullable.h: marks pointers that may be NULL. `mp_stream *MP_NULLABLE stream` as a member, parameter, variable or result: each use needs a
 * check on its way. `./dev lint` finds a missing one with clang's analyzer, which takes every pointer without the mark for never NULL. */
#ifndef MP_BASE_NULLABLE_H
#define MP_BASE_NULLABLE_H

#ifdef __clang__
#define MP_NULLABLE _Nullable
/* A header need not mark every pointer: the others are never NULL. */
#pragma clang diagnostic ignored "-Wnullability-completeness"
#else
#define MP_NULLABLE
#endif

#endif
