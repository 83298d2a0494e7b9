/* state.h: the structs and functions that the files of this folder share. */
#ifndef MP_GATEWAY_UPGRADE_STATE_H
#define MP_GATEWAY_UPGRADE_STATE_H

#include "upgrade.h"
#include "program_file.h"
#include <errno.h>
#include <unistd.h>

#define MP_UPGRADE_FORMAT 2 /* of the messages below: changes where an older program could not read them */
#define MP_UPGRADE_START_MS 60000
#define MP_UPGRADE_TRIAL_MS 2000
#define MP_UPGRADE_TELL_MS 10000 /* ms for the service manager to answer, also while it loads units */
#define MP_UPGRADE_OPENED 4
#define MP_UPGRADE_ASKS 8    /* requests that wait for the end of an upgrade */
#define MP_UPGRADE_TAIL 4096 /* bytes of the newer process's stderr that the answer quotes */

/* Kinds of messages. Bodies are texts that end with a NUL each. */
typedef enum {
    MP_SAY_HELLO = 1, /* both, first: the format, the version, the process's id; of the newer process its number, too */
    /* to the newer process: a group, its address in the configuration, its name, flags; the sockets */
    MP_SAY_SOCKETS,
    MP_SAY_FACTS, /* to the newer process: keys and folder; the admin listener's token */
    /* to the newer process: it may start; "empty" if the configuration file is empty; the descriptor of stderr */
    MP_SAY_BEGIN,
    MP_SAY_SERVING, /* from the newer process: the groups whose sockets it has taken */
    MP_SAY_UNWELL,  /* from the newer process, in the trial: why it must not become the newest one */
    MP_SAY_OLDER,   /* to the newer process: facts of another older process, and a link to it */
    MP_SAY_NEWEST,  /* to an older process: facts of the newest process, and a link to it */
    MP_SAY_COMMIT,  /* to the newer process: it is the newest one from now on */
    MP_SAY_DRAIN,   /* from the newest process to an older one: the gateway drains; the second one: it stops at once */
    MP_SAY_ASK,     /* from an older process to the newest one: SIGUSR2 has arrived there */
    MP_SAY_TICKETS, /* to the newer one: mp_certificates_hand, bytes instead of texts */
    MP_SAY_PLACES,  /* to the newer process: the shared memory with counts of all processes (rpc/places.h) */
    MP_SAY_OWNERS,  /* to the newest one, and in a trial both: how many sessions principals have
                       (mp_session_table_put_owners) */
    MP_SAY_LOGINS,  /* to the newer one, before the commit: codes and logins of the dashboard, as hashes */
    MP_SAY_NEWS,    /* to any process: a message of a Lua state for those of other processes; see news.c */
    MP_SAY_ENDED,   /* any: the number of another process that has ended */
    MP_SAY_LACKS,   /* to the newer one: "kept" if the last good generation is served; the scripts that are left out */
} mp_say;

typedef enum {
    MP_UPGRADE_IDLE,    /* the newest process, and no upgrade is under way */
    MP_UPGRADE_STARTS,  /* the newer process starts */
    MP_UPGRADE_TRIES,   /* the trial of the newer process */
    MP_UPGRADE_HANDS,   /* the store goes over to the newer process */
    MP_UPGRADE_COMMITS, /* the service manager is notified of the newer process */
    MP_UPGRADE_FAILS,   /* the newer process is to end */
    MP_UPGRADE_JOINS,   /* this process was begun by an upgrade, and is not the newest one yet. `link` is NULL once the
                           link to the process before it has ended */
    MP_UPGRADE_OLDER    /* another process is the newest one */
} mp_upgrade_state;

/* The newer process, as the older one sees it. */
typedef struct {
    mp_process_facts facts;
    mp_process_link *link;
    int pidfd;
    int said; /* the read end of the pipe that is its stderr until it serves; -1: closed */
    mp_buf tail;
    bool *taken;  /* by address of the listeners: true if the newer process has taken its sockets */
    mp_err why;   /* why the upgrade has failed */
    bool is_gone; /* HANDS, COMMITS: its link has ended, most likely since it has */
} mp_newer;

typedef struct {
    mp_process_facts facts;
    mp_process_link *link;
    int ends[2]; /* HANDS: the ends of its link to the newer process; else -1 */
} mp_older;

struct mp_upgrade {
    mp_worker_shared *shared;
    const mp_gateway_options *options;
    mp_listeners *MP_NULLABLE listeners; /* NULL until the workers serve */
    void (*committed)(void *ctx);
    void *ctx;
    mp_program_file file;
    mp_upgrade_state state;
    uint64_t until;                    /* the end of the state's time; 0: none */
    mp_newer newer;                    /* the newer process, in the states STARTS to FAILS */
    mp_process_link *MP_NULLABLE link; /* JOINS: to the process before this one; OLDER: to the newest one; else NULL */
    int parent;                        /* the process that started this one, or adopted it at once */
    char parent_name[64];
    mp_process_facts before; /* from JOINS on; number 0: no upgrade has begun this process */
    mp_older older[MP_OLDER_MOST];
    int older_count;
    pid_t child; /* OLDER: the process that this one has begun; 0: it has ended */
    /* which counts of sessions this process sends to `said_to`, see mp_upgrade_run_owners */
    mp_owners_said said;
    mp_process_link *MP_NULLABLE said_to; /* never used but compared */
    int log_fd;           /* JOINS: the stderr of the process before this one; -1: this process writes there already */
    bool is_unwell;       /* JOINS: MP_SAY_UNWELL was sent to the process before this one */
    bool is_signalled;    /* an upgrade is to begin when none is under way */
    int drains;           /* MP_SAY_DRAIN messages to each older process, or as an older one from the newest */
    int folder_fd;        /* holds the folder of the sockets; -1: there was no upgrade */
    int opened;           /* how many steps of opening sockets for other processes are done, MP_UPGRADE_OPENED if all */
    uint64_t keep_until;  /* OLDER: the time at which this process ends, also with sessions left */
    uint64_t quiet_since; /* OLDER: since when nothing is left to serve; 0: something is */
    atomic_int
        handed; /* HANDS: 1: the store was handed over; -1: it was not, because of hand_error; 0: the hand-over runs */
    mp_err hand_error;
    int wake_fd;                      /* an eventfd: another thread has asked for an upgrade */
    pthread_mutex_t lock;             /* guards the members below */
    mp_stream *asks[MP_UPGRADE_ASKS]; /* requests that wait for an upgrade; references of the admin thread */
    int ask_count;
    mp_account untaken; /* messages of other processes that wait for workers; any thread */
    mp_buf news;        /* messages for the other processes, each after its length */
    bool has_lost_news;
};

/* Appends a text with its NUL. */
static inline void mp_say_put(mp_buf *body, const char *text)
{
    mp_buf_put(body, (mp_str){text, strlen(text) + 1});
}

/* Makes the main loop run mp_upgrade_run. Any thread. */
static inline void mp_upgrade_wake(const mp_upgrade *upgrade)
{
    uint64_t one = 1;
    while (write(upgrade->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

/* implemented in news.c */
/* Sends the bus messages of this process's Lua states to the other processes. */
void mp_upgrade_run_news(mp_upgrade *upgrade);
/* Takes a message MP_SAY_NEWS that has come by the link `from`: gives it to a worker, and sends it on. */
void mp_upgrade_take_news(mp_upgrade *upgrade, mp_process_link *from, mp_str body);

/* implemented in refusal.c */
/* Notes the process that started this one. Called at the start, before that process may have ended. */
void mp_upgrade_find_parent(mp_upgrade *upgrade);
/* Sets why no upgrade can begin now. 0: one can. */
int mp_upgrade_refusal(const mp_upgrade *upgrade, mp_err *why);

/* Sends the newer process the list of files that this process does not serve because of their errors: the same errors
 * there are no reason against the upgrade. */
void mp_upgrade_send_lacks(const mp_upgrade *upgrade);

/* implemented in folder.c */
/* Makes the folder by whose sockets the processes of this gateway reach each other, unless an upgrade has made it,
 * holds it, and opens the sockets. -1 with the reason. */
int mp_upgrade_open_folder(mp_upgrade *upgrade, mp_err *err);
/* Holds the folder that the process before this one has made. -1 with errno. */
int mp_upgrade_hold_folder(mp_upgrade *upgrade, const char *path);

/* implemented in newer.c */
void mp_upgrade_run_joining(mp_upgrade *upgrade);

/* implemented in older.c */
/* The newer process is the newest one from now on. */
void mp_upgrade_become_older(mp_upgrade *upgrade);
void mp_upgrade_run_older(mp_upgrade *upgrade);

/* implemented in links.c */
/* Returns `ms`, a time limit of upgrades. The binary for specs replaces the function to shorten the limit. */
uint64_t mp_upgrade_time(uint64_t ms);
void mp_upgrade_add_older(mp_upgrade *upgrade, const mp_process_facts *facts, mp_process_link *link);
/* Closes the ends of its link to the newer process. */
void mp_upgrade_drop_pair(mp_older *one);
/* Reads the messages of older processes, and forgets processes that have ended. */
void mp_upgrade_run_links(mp_upgrade *upgrade);
/* Removes the socket files of a process that has ended; a process that was killed leaves them. */
void mp_upgrade_unlink(const mp_upgrade *upgrade, uint16_t number);
/* Gives the newer process its row in the counts that all processes share, and sends it their memory. */
void mp_upgrade_share_places(mp_upgrade *upgrade);
/* Sends changes of the numbers of sessions of principals to the process that counts them. */
void mp_upgrade_run_owners(mp_upgrade *upgrade);
/* Takes a message MP_SAY_ENDED: the process is unknown from now on. */
void mp_upgrade_take_ended(mp_upgrade *upgrade, mp_str body);
/* A process has ended: its places are free. */
void mp_upgrade_forget(mp_upgrade *upgrade, const mp_process_facts *facts);
void mp_upgrade_put_facts(mp_buf *body, const mp_process_facts *facts);
bool mp_upgrade_read_facts(mp_str *body, mp_process_facts *facts);
/* Sends the keys of session tickets to the newer process, and takes them there. */
void mp_upgrade_send_tickets(const mp_upgrade *upgrade);
void mp_upgrade_take_tickets(mp_upgrade *upgrade, mp_str body);
void mp_upgrade_forget_tickets(mp_upgrade *upgrade);
/* Sends the dashboard's logins to the newer process. */
void mp_upgrade_send_logins(mp_upgrade *upgrade);
void mp_link_message_close(const mp_link_message *message);
/* The facts of this process. */
mp_process_facts mp_upgrade_own_facts(const mp_upgrade *upgrade);

#endif
