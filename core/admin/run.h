/* run.h: what operators run through the admin listener: tools, resources and prompts inside a worker (POST /api/call),
 * and the lists of them (GET /api/tools and its like). Belongs to the admin thread. */
#ifndef MP_ADMIN_RUN_H
#define MP_ADMIN_RUN_H

#include "admin.h"
#include "query_slots.h"

/* Asks a worker's Lua (lua/moonpool/methods/operator.lua): `params` are the members of the question, as JSON. The
 * result of the Lua function becomes the answer. */
void mp_admin_ask(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str params);
/* A question that changes something. */
typedef struct {
    mp_str params;                /* the question for one worker */
    mp_str then;                  /* the question for all workers once that one has done it; empty: none */
    const char *requested, *done; /* events of the audit: before it is asked, and once the worker has done it */
    mp_str why;                   /* the member `why` of both events */
} mp_admin_change;

/* As mp_admin_ask. With `then`, the answer comes when all workers have done that, or after MP_QUESTION_MS, with a
 * member `workers_without_answer`: how many have not. */
void mp_admin_ask_change(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller,
                         const mp_admin_change *change);
/* run.c. Puts the message that asks a worker's Lua. */
void mp_admin_put_question(mp_buf *out, const char *id, mp_str params);

/* lists.c. Lists, by ?page=N&search=TEXT; `rest` is empty. */
void mp_api_tools(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_prompts(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_resources(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
/* Answers with one tool, prompt or resource; `rest` is its name, percent-encoded; a resource is named by ?uri=…. */
void mp_api_tool(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_prompt(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_resource(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

/* MCP tasks; and cancels one, which `rest` names. */
void mp_api_tasks(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_end_task(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

/* In switches.c. Lists the things that are switched off; switches a thing off or on. */
void mp_api_switches(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_switch(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

/* In switches.c. Shows a definition of an upstream that is not approved, and approves it. */
void mp_api_approve(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

/* Sign-ins at the gateway; and ends one, which `rest` names, or those of a user. */
void mp_api_sign_ins(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_end_sign_in(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_end_sign_ins(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

/* In switches.c. Removes the records of a node of the cluster that does not renew them. */
void mp_api_drain_node(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_forget_node(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

/* Begins a call, and answers with an event stream that has its progress, messages, questions and result. */
void mp_api_call(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
/* Answers a question of the call, or cancels it; `rest` is the run that the stream has named. */
void mp_api_answer(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

#endif
