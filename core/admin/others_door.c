/* others_door.c: the socket at which a process answers to the other ones, and the counts that it leaves with the newest
 * process at its end. */
#include "others_state.h"
#include "run.h"
#include "json/json.h"
#include <unistd.h>

#define DOOR_RESERVE 256 /* connections of other processes, above limits.connections */
#define LEAVE_MS 1000    /* ms for leaving the counts of this process */
#define AGAIN_MS 1000    /* ms between attempts to open the socket */

/* -- the end of a process ------------------------------------------------------------------------------------------ */

void mp_others_take_end(mp_admin *admin, mp_stream *stream)
{
    mp_others *all = mp_others_of(admin);
    int64_t number;
    mp_str query = mp_stream_request(stream)->query, name = MP_STR("number="), body = mp_stream_request(stream)->body;
    if (!mp_str_starts(query, name) || !mp_json_int(mp_str_from(query, name.len), &number) || number <= 0 ||
        number > UINT16_MAX) {
        mp_admin_refuse(stream, 400, MP_STR("the query must be number=N, the number of a process"));
        return;
    }
    if (!mp_processes_has(mp_others_processes(all), (uint16_t)number) ||
        !mp_left_take_end(&all->left, (uint16_t)number, body)) {
        mp_admin_refuse(stream, 409, MP_STR("the counts of this process were added already"));
        return;
    }
    mp_stream_answer(stream, 200, "application/json", MP_STR("{}\n"), NULL, 0);
}

static void on_left(mp_timer *timer)
{
    mp_others *all = mp_container(timer, mp_others, leave);
    mp_transfer_free(all->leaving);
    all->leaving = NULL;
    mp_buf_clear(&all->last);
    all->on_left(all->admin);
}

/* Called when the newest process has answered. */
static void on_taken(MP_UNUSED mp_transfer *transfer, void *ctx)
{
    mp_others *all = ctx;
    mp_timer_start(mp_admin_loop(all->admin), &all->leave, 0, on_left);
}

void mp_others_leave(mp_admin *admin, void (*left)(mp_admin *admin))
{
    mp_others *all = mp_others_of(admin);
    mp_processes *processes = mp_others_processes(all);
    const mp_admin_door *door = mp_admin_gateway_of(admin)->door;
    char target[64];
    all->on_left = left;
    if (all->door != NULL && mp_processes_are_several(processes) && !mp_processes_is_newest(processes)) {
        all->has_left = true;
        door->put_status(admin, &all->last);
        mp_buf_put(&all->last, all->left.status.len > 0 ? mp_buf_str(&all->left.status) : MP_STR("{}\n"));
        door->put_metrics(admin, &all->last);
        snprintf(target, sizeof target, "/process/end?number=%u", mp_processes_number(processes));
        const mp_outgoing how = {
            .method = "POST", .body = mp_buf_str(&all->last), .connect_ms = LEAVE_MS, .ready = on_taken, .ctx = all};
        all->leaving = mp_others_ask(admin, mp_processes_newest(processes), &how,
                                     &(mp_others_question){.target = mp_str_of(target)});
    }
    mp_timer_start(mp_admin_loop(admin), &all->leave, all->leaving == NULL ? 0 : LEAVE_MS, on_left);
}

/* -- the socket at which other processes of the gateway ask this one ----------------------------------------------- */

mp_http_limits mp_others_door_limits(const mp_others *all)
{
    mp_http_limits limits = mp_admin_settings(all->admin)->http;
    /* a process that ends sends its counts in one body */
    limits.body = limits.body > MP_OTHERS_ANSWER ? limits.body : MP_OTHERS_ANSWER;
    limits.bodies = limits.bodies > MP_OTHERS_ANSWER ? limits.bodies : MP_OTHERS_ANSWER;
    return limits;
}

typedef struct {
    mp_admin *admin;
    mp_address at;
    int fd;
} door_message;

/* Serves at the socket. Without free descriptors it tries again later: meanwhile requests wait in the socket's
 * queue. */
static void open_door(mp_timer *timer)
{
    mp_others *all = mp_container(timer, mp_others, tick);
    mp_loop *loop = mp_admin_loop(all->admin);
    mp_err err = {0};
    mp_http_limits limits = mp_others_door_limits(all);
    mp_server *MP_NULLABLE door = mp_server_new(loop, &limits, &err);
    const mp_endpoint endpoint = {.on_request = mp_admin_gateway_of(all->admin)->door->serve,
                                  .ctx = all->admin,
                                  .reserve = DOOR_RESERVE,
                                  .is_shared = true};
    if (door == NULL || mp_server_listen(door, all->door_fd, &endpoint, &err) != 0) {
        mp_server_free(door);
        mp_log(
            MP_WARN, "socket for other processes not opened", mp_log_str("why", mp_str_of(err.text)),
            mp_log_str("hint",
                       MP_STR("the gateway tries again; until then /status of the newest process lacks this process")));
        mp_timer_start(loop, &all->tick, AGAIN_MS, open_door);
        return;
    }
    all->door = door;
    all->door_fd = -1;
    mp_others_on_tick(timer);
}

/* Delivers a message on the admin thread. `loop` is NULL if that thread has ended. */
static void deliver_answer(void *content, mp_loop *MP_NULLABLE loop)
{
    door_message *given = content;
    mp_others *MP_NULLABLE all = loop == NULL ? NULL : mp_others_of(given->admin);
    if (all == NULL) {
        mp_unlink_address(&given->at);
        close(given->fd);
    } else {
        all->at = given->at;
        all->door_fd = given->fd;
        open_door(&all->tick);
    }
}

int mp_admin_open_door(mp_admin *admin, mp_err *err)
{
    mp_processes *processes = mp_admin_gateway_of(admin)->processes;
    char path[MP_PROCESS_PATH], where[MP_PROCESS_PATH + 8];
    if (!mp_processes_path(processes, mp_processes_number(processes), "admin", path))
        return mp_err_set(err, "the path of the folder for upgrades is too long");
    door_message message = {.admin = admin};
    snprintf(where, sizeof where, "unix:%s", path);
    if (mp_listen(where, 1, &(mp_socket_file){0600, NULL}, &message.fd, &message.at, err) != 0)
        return -1;
    mp_loop_send(mp_admin_loop(admin), deliver_answer, &message, sizeof message, MP_STR_NONE);
    return 0;
}
