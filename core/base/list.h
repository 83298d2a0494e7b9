/* list.h: an intrusive circular list. Zeroed memory is an empty list, and a link that is in no list: nothing has to be
 * prepared, and removing a link twice is harmless. A struct may be copied or moved only while its links are in no list
 * and its lists are empty. */
#ifndef MP_BASE_LIST_H
#define MP_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mp_link {
    struct mp_link *prev, *next;
} mp_link;

/* The struct of type `type` whose member `member` is at `ptr`. */
#define mp_container(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

/* For memory that is not zeroed. */
static inline void mp_link_init(mp_link *link)
{
    link->prev = link->next = NULL;
}

static inline bool mp_link_is_alone(const mp_link *link)
{
    return link->next == link || link->next == NULL;
}

/* The first and the last link of the list; the head itself if the list is empty. */
static inline mp_link *mp_link_first(const mp_link *head)
{
    return mp_link_is_alone(head) ? (mp_link *)(uintptr_t)head : head->next;
}

static inline mp_link *mp_link_last(const mp_link *head)
{
    return mp_link_is_alone(head) ? (mp_link *)(uintptr_t)head : head->prev;
}

static inline void mp_link_drop(mp_link *link)
{
    if (mp_link_is_alone(link))
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    mp_link_init(link);
}

/* Appends `link`, which is in no list, to the list with this head; before another link of the list: in front of it. */
static inline void mp_link_put(mp_link *head, mp_link *link)
{
    if (head->next == NULL)
        head->prev = head->next = head;
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

/* Removes the first link of the list and returns it; NULL if the list is empty. */
static inline mp_link *MP_NULLABLE mp_link_take(mp_link *head)
{
    if (mp_link_is_alone(head))
        return NULL;
    mp_link *first = head->next;
    mp_link_drop(first);
    return first;
}

/* Moves all links of a list to another one, which is empty. */
static inline void mp_link_move(mp_link *from, mp_link *to)
{
    if (mp_link_is_alone(from))
        return;
    *to = *from;
    to->next->prev = to->prev->next = to;
    mp_link_init(from);
}

/* Runs for each struct of type `type` whose member `member` is in the list with this head; `name` points at it. In its
 * turn it may leave the list and be freed; the one after it must stay. */
#define MP_EACH(type, name, head, member)                                                                              \
    for (type *name = mp_container(mp_link_first(head), type, member), *name##_next;                                   \
         &name->member != (head) && (name##_next = mp_container(name->member.next, type, member), true);               \
         name = name##_next)

/* Takes one after another from the list until it is empty. */
#define MP_EACH_TAKEN(type, name, head, member)                                                                        \
    for (mp_link * taken_; (taken_ = mp_link_take(head)) != NULL;)                                                     \
        for (type *name = mp_container(taken_, type, member); name != NULL; name = NULL)

#endif
