/* grant.h: the grants of the configuration: the hosts, files, programs, variables and stores that scripts may use. Part
 * of lib.h. */
#ifndef MP_LIB_GRANT_H
#define MP_LIB_GRANT_H

typedef enum {
    MP_GRANT_NET,
    MP_GRANT_READ,
    MP_GRANT_WRITE,
    MP_GRANT_RUN,
    MP_GRANT_ENV,
    MP_GRANT_STORE,
    MP_GRANT_KINDS
} mp_grant_kind;

typedef struct {
    char *path; /* the scripts it applies to, relative to the scripts' folder: "" (all), a folder that ends in '/', or a
                   file */
    char **MP_NULLABLE lists[MP_GRANT_KINDS]; /* the granted names, by kind; each list is NULL or ends with NULL */
    int line;                                 /* line of the configuration; 0 if the grant is not in a file */
    int lines[MP_GRANT_KINDS];                /* line of the configuration of each list */
} mp_grant;

#endif
