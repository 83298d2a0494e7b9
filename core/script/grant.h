/* grant.h: what the operator lets scripts touch, part of the door script.h. */
#ifndef MP_SCRIPT_GRANT_H
#define MP_SCRIPT_GRANT_H

typedef enum { MP_GRANT_NET, MP_GRANT_READ, MP_GRANT_WRITE, MP_GRANT_RUN, MP_GRANT_ENV, MP_GRANT_KINDS } mp_grant_kind;

typedef struct {
    char *path;                   /* below the scripts' folder: "" (all), a folder that ends in '/', a file */
    char **lists[MP_GRANT_KINDS]; /* each NULL, or ended by NULL */
} mp_grant;

#endif
