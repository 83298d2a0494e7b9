/* mailbox.c: messages from other threads: a lock-free stack, which the loop takes as a whole and reverses, so that
 * the messages of each sender keep their order. */
#include "state.h"
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

static mp_message closed; /* the address of this variable is the head of a mailbox whose loop has ended */

static void on_wake(mp_fdwatch *watch, MP_UNUSED uint32_t events)
{
    uint64_t count;
    while (read(watch->fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

int mp_mailbox_open(mp_loop *loop)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return -1;
    if (mp_fdwatch_start(loop, &loop->mailbox.wake, fd, EPOLLIN, on_wake) == 0)
        return 0;
    close(fd);
    return -1;
}

void mp_mailbox_wake(mp_loop *loop)
{
    uint64_t one = 1;
    while (write(loop->mailbox.wake.fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void mp_loop_post(mp_loop *loop, mp_message *message)
{
    /* A thread that finds the mailbox closed delivers in the place of the loop's thread, and sees all that this thread
     * did before. */
    mp_message *head = atomic_load_explicit(&loop->mailbox.head, memory_order_acquire);
    do {
        if (head == &closed) {
            message->deliver(message, NULL);
            return;
        }
        message->next = head;
    } while (!atomic_compare_exchange_weak(&loop->mailbox.head, &head, message));
    if (head == NULL)
        mp_mailbox_wake(loop);
}

/* A message with a copy of its content. */
typedef struct {
    mp_message super;
    void (*deliver)(void *content, mp_loop *MP_NULLABLE loop);
    max_align_t content[];
} parcel;

static void deliver_parcel(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    parcel *it = mp_container(message, parcel, super);
    it->deliver(it->content, loop);
    free(it);
}

void mp_loop_send(mp_loop *loop, void (*deliver)(void *content, mp_loop *MP_NULLABLE loop), const void *content,
                  size_t size, mp_str text)
{
    parcel *it = mp_new(sizeof *it + size + text.len);
    it->super.deliver = deliver_parcel;
    it->deliver = deliver;
    memcpy(it->content, content, size);
    if (text.len > 0)
        memcpy((char *)it->content + size, text.ptr, text.len);
    mp_loop_post(loop, &it->super);
}

typedef struct {
    void (*act)(void *ctx);
    void *ctx;
} call_message;

static void deliver_call(void *content, mp_loop *MP_NULLABLE loop)
{
    const call_message *message = content;
    if (loop != NULL)
        message->act(message->ctx);
}

void mp_loop_call(mp_loop *loop, void (*act)(void *ctx), void *ctx)
{
    mp_loop_send(loop, deliver_call, &(call_message){act, ctx}, sizeof(call_message), MP_STR_NONE);
}

/* Delivers the messages, oldest first; `to` is NULL if the loop has ended. */
static void deliver_all(mp_message *newest, mp_loop *MP_NULLABLE to)
{
    mp_message *oldest = NULL;
    while (newest != NULL && newest != &closed) {
        mp_message *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        mp_message *next = oldest->next;
        oldest->deliver(oldest, to);
        oldest = next;
    }
}

void mp_mailbox_deliver(mp_loop *loop)
{
    if (atomic_load_explicit(&loop->mailbox.head, memory_order_relaxed) != NULL)
        deliver_all(atomic_exchange(&loop->mailbox.head, NULL), loop);
}

void mp_mailbox_shut(mp_loop *loop)
{
    deliver_all(atomic_exchange(&loop->mailbox.head, &closed), NULL);
}

void mp_mailbox_close(mp_loop *loop)
{
    mp_mailbox_shut(loop);
    if (loop->mailbox.wake.slot == 0)
        return;
    mp_fdwatch_stop(loop, &loop->mailbox.wake);
    close(loop->mailbox.wake.fd);
}
