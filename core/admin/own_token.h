/* own_token.h: the token that a gateway without configured ones makes for its own user and for root.
 *
 * The gateway holds its text in a memory file (memfd). A command finds the process that listens at the admin address,
 * and reads the text through /proc/PID/fd: the kernel lets only root and the process's own user do that, whatever
 * variables, folders and mounts there are, and nothing of it outlives the process. If $RUNTIME_DIRECTORY or
 * $XDG_RUNTIME_DIR is set, the text is in a file there, too: for programs that are no commands of moonpool, and where
 * the kernel refuses /proc (a unit with user namespaces or capabilities of its own). */
#ifndef MP_ADMIN_OWN_TOKEN_H
#define MP_ADMIN_OWN_TOKEN_H

#include "config/config.h"

typedef struct mp_own_token mp_own_token;

/* Makes the token of the listener at `port`, and sets `hash`. NULL, which is logged: the kernel has no memory file and
 * there is no folder. `handed`: the memory file of an earlier process of this gateway, whose token it is; the caller's;
 * -1: none. */
mp_own_token *MP_NULLABLE mp_own_token_new(uint16_t port, int handed, mp_secret_hash *hash);
/* Another process of the gateway has the token from now on and removes its file: this one does not. NULL is allowed. */
void mp_own_token_leave(mp_own_token *MP_NULLABLE token);
/* Duplicates the memory file; -1: there is none. NULL is allowed. Any thread. */
int mp_own_token_fd(const mp_own_token *MP_NULLABLE token);
/* Removes the file. */
void mp_own_token_free(mp_own_token *MP_NULLABLE token);

/* The token of the gateway that listens at `address`, if that is a loopback address of this machine. The caller frees
 * it. NULL: none, or none that this user may read. */
char *MP_NULLABLE mp_own_token_find(const char *address);

#endif
