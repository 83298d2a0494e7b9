/* connection.c: sends a statement, prepares it before if it may be, and takes its results, row by row. */
#include "connection.h"
#include <errno.h>
#include <sys/epoll.h>

MP_GAUGE(postgres_bytes, "postgres_bytes", "", "", "bytes of results of PostgreSQL servers that no task has taken yet")
MP_REFUSED(refused_input, "postgres_input", MP_FAULT,
           "connections to PostgreSQL servers that were closed for a row above 16 MiB, or for what no statement had "
           "asked for")

#define MAX_ROWS 10000                /* of a result, as of SQLite */
#define MAX_BYTES ((size_t)16 << 20)  /* of a result, and of one row as it comes */
#define LARGE_BYTES ((size_t)1 << 20) /* of a row or of parameters: then the connection is not used again */
#define BATCH_BYTES ((size_t)1 << 20) /* of rows that are taken one after another */
#define IDLE_BYTES ((size_t)64 << 10) /* that come while nothing runs, other than notifications */
#define USUAL_BYTES 1024              /* of a statement, beside its result */
#define MAX_USES 65536                /* statements of a connection, each of which may have left USUAL_BYTES in libpq */
/* us of processor time in which libpq must read MP_GATE_BYTES, besides 1 us for each 32 bytes of results */
#define MAX_TURN_US (uint64_t)MP_LIMIT(postgres_turn_us, 50000)
#define RECORD_BYTES 32 /* that TLS adds to a record */
#define END_BYTES 64    /* of the messages before and behind a query's rows */
#define NAME_BYTES 16

/* -- results ------------------------------------------------------------------------------------------------------- */

static void hold(mp_postgres_lease *lease)
{
    mp_stat_add(&mp_stat_postgres_bytes, (int64_t)lease->result.cap - (int64_t)lease->held);
    lease->held = lease->result.cap;
}

void mp_postgres_drop_result(mp_postgres_lease *lease)
{
    mp_buf_clear(&lease->result);
    hold(lease);
}

void mp_postgres_end_statement(mp_postgres_lease *lease, mp_postgres_end end, const char *MP_NULLABLE why)
{
    if (why != NULL) {
        free(lease->why);
        lease->why = mp_dup_text(why);
    }
    if (end > MP_POSTGRES_MORE)
        mp_buf_clear(&lease->result);
    hold(lease);
    lease->had_connection |= lease->of != NULL;
    lease->end = end;
    lease->done(lease->ctx);
}

/* The lease whose statement runs; NULL: nobody waits for what comes. */
static mp_postgres_lease *MP_NULLABLE waiting_lease(const mp_postgres_connection *it)
{
    return it->lease != NULL && it->lease->end == MP_POSTGRES_WAITS ? it->lease : NULL;
}

static void put_text(mp_buf *out, char tag, mp_str text)
{
    uint32_t len = (uint32_t)text.len;
    mp_buf_putc(out, tag);
    mp_buf_put(out, (mp_str){(const char *)&len, sizeof len});
    mp_buf_put(out, text);
}

/* The rows that were changed or given; -1: a COMMIT that had to roll back. */
static void put_count(mp_buf *out, const PGresult *of)
{
    PGresult *result = (PGresult *)(uintptr_t)of;
    int64_t count = strcmp(mp_pq.cmdStatus(result), "ROLLBACK") == 0 ? -1 : strtoll(mp_pq.cmdTuples(result), NULL, 10);
    mp_buf_putc(out, 'k');
    mp_buf_put(out, (mp_str){(const char *)&count, sizeof count});
}

/* A message of this size has been read, and libpq does not keep it: takes it off `loose`, with the record of TLS that
 * it may have come in. */
static void account_for(mp_postgres_connection *it, size_t bytes)
{
    bytes += bytes / 64 + (it->pool->server.is_tls ? RECORD_BYTES : 0);
    it->loose -= bytes < it->loose ? bytes : it->loose;
}

/* The step is over: what is left of `loose`, above the usual bytes, may stay in libpq. */
static void count_noise(mp_postgres_connection *it)
{
    if (it->loose > USUAL_BYTES)
        it->noise += it->loose - USUAL_BYTES;
    it->loose = 0;
    if (it->noise > LARGE_BYTES || ++it->uses > MAX_USES)
        it->ends_at = 0;
}

/* Bytes of a result's rows as the server sends them; `has_columns`: and of the description of its columns. */
static size_t size_of(const PGresult *result, bool has_columns)
{
    int rows = mp_pq.ntuples(result), columns = mp_pq.nfields(result);
    size_t bytes = 0;
    for (int i = 0; i < columns && has_columns; i++)
        bytes += 19 + strlen(mp_pq.fname(result, i));
    for (int row = 0; row < rows; row++) {
        bytes += 7;
        for (int i = 0; i < columns; i++)
            bytes += 4 + (size_t)mp_pq.getlength(result, row, i);
    }
    return bytes;
}

static void put_rows(mp_postgres_lease *lease, const PGresult *result)
{
    mp_buf *out = &lease->result;
    int rows = mp_pq.ntuples(result), columns = mp_pq.nfields(result);
    for (int i = 0; i < columns && !lease->has_columns; i++) {
        uint32_t type = mp_pq.ftype(result, i);
        put_text(out, 'c', mp_str_of(mp_pq.fname(result, i)));
        mp_buf_put(out, (mp_str){(const char *)&type, sizeof type});
    }
    lease->has_columns = true;
    for (int row = 0; row < rows; row++) {
        mp_buf_putc(out, 'r');
        for (int i = 0; i < columns; i++)
            if (mp_pq.getisnull(result, row, i))
                mp_buf_putc(out, 'n');
            else
                put_text(out, 'v', (mp_str){mp_pq.getvalue(result, row, i), (size_t)mp_pq.getlength(result, row, i)});
    }
    lease->rows += (size_t)rows;
}

static void check_bounds(mp_postgres_connection *it, mp_postgres_lease *lease)
{
    const char *why = NULL;
    size_t fetch = lease->statement.fetch;
    if (lease->result.len > MAX_BYTES)
        why = "the result is larger than 16 MiB: select less, or take rows one by one with 'each'";
    else if (fetch == 0 && lease->rows > MAX_ROWS)
        why = "the result has more than 10,000 rows: add 'limit', or take rows one by one with 'each'";
    if (why != NULL) {
        mp_postgres_end_statement(lease, MP_POSTGRES_UNKNOWN, why);
    } else if (fetch > 0 && (lease->rows >= fetch || lease->result.len >= BATCH_BYTES)) {
        it->is_paused = true;
        mp_postgres_end_statement(lease, MP_POSTGRES_MORE, NULL);
    }
}

void mp_postgres_forget(mp_prepared *prepared, bool is_prepared)
{
    free(prepared->sql);
    free(prepared->types);
    *prepared = (mp_prepared){.is_prepared = is_prepared};
}

static void take_failure(mp_postgres_connection *it, const PGresult *result)
{
    mp_postgres_lease *lease = waiting_lease(it);
    const char *state = mp_pq.resultErrorField(result, PG_DIAG_SQLSTATE),
               *text = mp_pq.resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    bool is_changed = state != NULL && strcmp(state, "0A000") == 0,
         is_gone = state != NULL && strcmp(state, "26000") == 0;
    it->has_failed = true;
    if ((is_changed || is_gone) && it->step == RUNNING && it->prepared != NULL) /* its tables are others now */
        mp_postgres_forget(it->prepared, is_changed);
    if (lease == NULL || lease->why != NULL)
        return;
    snprintf(lease->state, sizeof lease->state, "%s", state == NULL ? "" : state);
    lease->why = mp_dup_text(text == NULL ? "the connection was closed" : text);
}

static void take_result(mp_postgres_connection *it, const PGresult *result)
{
    mp_postgres_lease *lease = waiting_lease(it);
    ExecStatusType status = mp_pq.resultStatus(result);
    if (status != PGRES_SINGLE_TUPLE)
        account_for(it, END_BYTES);
    switch (status) {
    case PGRES_SINGLE_TUPLE:
    case PGRES_TUPLES_OK:
        account_for(it, size_of(result, lease != NULL && !lease->has_columns));
        if (lease == NULL)
            break;
        put_rows(lease, result);
        if (status == PGRES_TUPLES_OK) {
            put_count(&lease->result, result);
            lease->has_columns = false;
        }
        check_bounds(it, lease);
        break;
    case PGRES_COMMAND_OK:
    case PGRES_EMPTY_QUERY:
        if (lease != NULL && it->step == RUNNING)
            put_count(&lease->result, result);
        break;
    case PGRES_PIPELINE_SYNC:
        it->is_pipeline = false;
        break;
    case PGRES_PIPELINE_ABORTED:
        break;
    case PGRES_COPY_IN:
    case PGRES_COPY_OUT:
    case PGRES_COPY_BOTH:
        it->is_spoiled = true;
        if (lease != NULL)
            mp_postgres_end_statement(lease, MP_POSTGRES_UNKNOWN, "COPY is not for scripts: use insert and select");
        break;
    default:
        account_for(it, mp_libpq_size(result));
        take_failure(it, result);
    }
}

void mp_postgres_take_notice(void *ctx, const PGresult *notice)
{
    account_for(ctx, mp_libpq_size(notice));
}

/* libpq keeps them until they are taken: a server sends notifications if something in the session listens. */
static void take_notifications(mp_postgres_connection *it)
{
    PGnotify *one;
    const mp_postgres_listener *listener = it->lease == NULL ? NULL : it->pool->listener;
    while ((one = mp_pq.notifies(it->conn)) != NULL) {
        account_for(it, strlen(one->relname) + strlen(one->extra) + 11);
        if (listener != NULL)
            listener->notified(listener->ctx, one->relname, one->extra);
        mp_pq.freemem(one);
    }
}

static void on_event(mp_fdwatch *watch, uint32_t events)
{
    mp_postgres_connection *it = mp_container(watch, mp_postgres_connection, watch);
    if (it->is_paused && (events & (EPOLLHUP | EPOLLERR)) != 0) /* it would be reported again and again */
        mp_postgres_lose(it, "the server closed the connection");
    else
        mp_postgres_go(it);
}

/* Sends what is left, and watches what the connection waits for. */
static void send_rest(mp_postgres_connection *it)
{
    mp_err why;
    int unsent = it->is_spoiled ? -1 : mp_pq.flush(it->conn);
    bool is_left = unsent >= 0 && (mp_gate_send(&it->gate) || unsent > 0);
    uint32_t wanted = (it->is_paused ? 0 : (uint32_t)EPOLLIN | EPOLLRDHUP) | (is_left ? (uint32_t)EPOLLOUT : 0);
    if (unsent < 0 || mp_pq.status(it->conn) == CONNECTION_BAD) {
        mp_libpq_explain(&why, mp_pq.errorMessage(it->conn));
        mp_postgres_lose(it, *why.text == '\0' ? "the server closed the connection" : why.text);
    } else if ((it->watch.slot == 0 || wanted != it->events) &&
               mp_fdwatch_start(it->pool->loop, &it->watch, it->gate.server, wanted, on_event) != 0) {
        mp_postgres_lose(it, strerror(errno));
    } else {
        it->events = wanted;
        if (it->lease == NULL && it->step == NOTHING && it->is_apart)
            mp_postgres_settle(it);
    }
}

/* -- sending ------------------------------------------------------------------------------------------------------- */

static int send_query(mp_postgres_connection *it, const mp_postgres_query *query)
{
    return mp_pq.sendQueryParams(it->conn, query->sql, query->count, query->types, query->values, query->lens,
                                 query->formats, 0);
}

static void name_of(const mp_postgres_connection *it, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "moonpool_%d", (int)(it->prepared - it->statements));
}

static int execute(mp_postgres_connection *it)
{
    char name[NAME_BYTES];
    mp_postgres_lease *lease = MP_NEVER_NULL(it->lease); /* it has a statement to send */
    const mp_postgres_query *query = lease->statement.queries;
    lease->is_sent = true;
    it->step = RUNNING;
    if (it->prepared == NULL)
        return send_query(it, query);
    name_of(it, name);
    it->prepared->used = ++it->uses;
    return mp_pq.sendQueryPrepared(it->conn, name, query->count, query->values, query->lens, query->formats, 0);
}

static int prepare(mp_postgres_connection *it)
{
    char name[NAME_BYTES], sql[NAME_BYTES + 16];
    mp_prepared *prepared = MP_NEVER_NULL(it->prepared); /* that of this step */
    const mp_postgres_query *query = MP_NEVER_NULL(it->lease)->statement.queries;
    name_of(it, name);
    if (prepared->is_prepared) {
        snprintf(sql, sizeof sql, "DEALLOCATE %s", name);
        it->step = DEALLOCATING;
        return mp_pq.sendQueryParams(it->conn, sql, 0, NULL, NULL, NULL, NULL, 0);
    }
    it->step = PREPARING;
    return mp_pq.sendPrepare(it->conn, name, query->sql, query->count, query->types);
}

static bool is_of(const mp_prepared *prepared, const mp_postgres_query *query)
{
    return prepared->sql != NULL && strcmp(prepared->sql, query->sql) == 0 && prepared->count == query->count &&
           memcmp(MP_NEVER_NULL(prepared->types), query->types, (size_t)query->count * sizeof *query->types) == 0;
}

/* Finds the prepared statement, or the place of the one that was used longest ago. */
static bool find_prepared(mp_postgres_connection *it, const mp_postgres_query *query)
{
    mp_prepared *oldest = it->statements;
    for (int i = 0; i < MP_PREPARED; i++) {
        mp_prepared *one = &it->statements[i];
        if (is_of(one, query)) {
            it->prepared = one;
            return true;
        }
        if (one->used < oldest->used)
            oldest = one;
    }
    it->prepared = oldest;
    mp_postgres_forget(oldest, oldest->is_prepared);
    return false;
}

static int send_pipeline(mp_postgres_connection *it, const mp_postgres_statement *statement)
{
    it->step = RUNNING;
    it->is_pipeline = true;
    it->queries = statement->count;
    int sent = mp_pq.enterPipelineMode(it->conn);
    for (int i = 0; i < statement->count && sent; i++)
        sent = send_query(it, &statement->queries[i]);
    return sent && mp_pq.pipelineSync(it->conn);
}

static void after_send(mp_postgres_connection *it, int sent)
{
    it->has_failed = false;
    if (sent && it->step == RUNNING)
        mp_pq.setSingleRowMode(it->conn);
    if (!sent)
        it->is_spoiled = true;
}

void mp_postgres_begin(mp_postgres_connection *it)
{
    mp_postgres_lease *lease = MP_NEVER_NULL(it->lease); /* it was given the connection for a statement */
    const mp_postgres_statement *statement = &lease->statement;
    const mp_postgres_query *query = statement->queries;
    size_t bytes = 0;
    int sent;
    for (int i = 0; i < statement->count; i++)
        for (int k = 0; k < statement->queries[i].count; k++)
            bytes += (size_t)statement->queries[i].lens[k];
    if (bytes > LARGE_BYTES)
        it->ends_at = 0;
    it->prepared = NULL;
    it->is_pipeline = false;
    it->queries = 0;
    if (statement->count > 1) {
        lease->is_sent = true;
        sent = send_pipeline(it, statement);
    } else if (statement->is_stored && it->pool->server.prepares &&
               mp_pq.transactionStatus(it->conn) != PQTRANS_INERROR && !find_prepared(it, query)) {
        sent = prepare(it);
    } else {
        sent = execute(it);
    }
    after_send(it, sent);
    send_rest(it);
}

void mp_postgres_roll_back(mp_postgres_connection *it)
{
    it->step = ROLLING_BACK;
    it->prepared = NULL;
    it->is_pipeline = false;
    after_send(it, mp_pq.sendQueryParams(it->conn, "ROLLBACK", 0, NULL, NULL, NULL, NULL, 0));
    send_rest(it);
}

/* -- steps --------------------------------------------------------------------------------------------------------- */

/* The statement is over: the server waits for the next one. */
static void end_step(mp_postgres_connection *it)
{
    mp_postgres_lease *lease = waiting_lease(it);
    it->step = NOTHING;
    count_noise(it);
    if (lease == NULL)
        return;
    const char *state = lease->state;
    bool is_lost = strncmp(state, "08", 2) == 0 || strncmp(state, "57P", 3) == 0 || *state == '\0';
    if (lease->why != NULL && is_lost && !lease->is_sent) {
        it->is_spoiled = true; /* the statement goes to another connection */
        return;
    }
    mp_postgres_end_statement(lease,
                              lease->why == NULL ? MP_POSTGRES_DONE
                              : is_lost          ? MP_POSTGRES_UNKNOWN
                                                 : MP_POSTGRES_FAILED,
                              NULL);
}

/* All results of what was sent last have come. */
static void next_step(mp_postgres_connection *it)
{
    mp_postgres_lease *lease = waiting_lease(it);
    mp_prepared *prepared = it->prepared;
    if (it->step == RUNNING && it->is_pipeline) {
        it->is_spoiled = --it->queries < 0; /* the end of the pipeline has not come */
        if (lease != NULL)
            lease->has_columns = false;
        mp_pq.setSingleRowMode(it->conn);
        return;
    }
    bool is_prepared = it->step == PREPARING;
    if (prepared == NULL || it->step == RUNNING || it->has_failed) {
        end_step(it);
        return;
    }
    prepared->is_prepared = is_prepared;
    if (lease == NULL) {
        end_step(it);
    } else if (is_prepared) {
        const mp_postgres_query *query = lease->statement.queries;
        size_t bytes = (size_t)query->count * sizeof *query->types;
        prepared->sql = mp_dup(mp_str_of(query->sql));
        prepared->count = query->count;
        prepared->types = mp_new(bytes + 1);
        memcpy(prepared->types, query->types, bytes);
        after_send(it, execute(it));
    } else {
        after_send(it, prepare(it));
    }
}

static void take_results(mp_postgres_connection *it)
{
    while (it->step != NOTHING && !it->is_paused && !it->is_spoiled && !mp_pq.isBusy(it->conn)) {
        PGresult *result = mp_pq.getResult(it->conn);
        if (result != NULL)
            take_result(it, result);
        else
            next_step(it);
        bool is_sync = mp_pq.resultStatus(result) == PGRES_PIPELINE_SYNC;
        mp_pq.clear(result);
        if (is_sync) {
            it->is_spoiled = !mp_pq.exitPipelineMode(it->conn);
            end_step(it);
        }
    }
}

/* Takes what the gate lets in. Returns how many bytes of what had come became results. */
static size_t read_input(mp_postgres_connection *it)
{
    bool is_open = true;
    /* libpq may leave up to a record of TLS unread, of which the socket tells nothing */
    int more = it->pool->server.is_tls;
    it->loose += mp_gate_let_in(&it->gate);
    size_t before = it->loose;
    while (is_open && !it->is_paused && !it->is_spoiled) {
        is_open = mp_pq.consumeInput(it->conn) != 0;
        take_results(it);
        take_notifications(it);
        if (mp_gate_unread(&it->gate) == 0 && more-- == 0)
            break;
    }
    if (it->loose > LARGE_BYTES)
        it->ends_at = 0;
    return before - it->loose;
}

void mp_postgres_go(mp_postgres_connection *it)
{
    const char *why = NULL;
    uint64_t began = mp_clock_us(CLOCK_THREAD_CPUTIME_ID), most_us = MAX_TURN_US;
    if (!it->is_paused && !it->is_spoiled)
        most_us += read_input(it) / 32;
    if (it->step != NOTHING && it->loose > MAX_BYTES + LARGE_BYTES)
        why = "a row is larger than 16 MiB";
    else if (it->step == NOTHING && it->loose > IDLE_BYTES)
        why = "the server sends what no statement has asked for";
    else if (mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - began > most_us)
        why = "what the server sends takes too long to read";
    if (why == NULL) {
        send_rest(it);
    } else {
        mp_stat_add(&mp_stat_refused_input, 1);
        mp_postgres_lose(it, why);
    }
}

/* -- what a result consists of ------------------------------------------------------------------------------------- */

const char *MP_NULLABLE mp_postgres_items(const mp_postgres_lease *lease)
{
    return lease->result.len == 0 ? NULL : lease->result.ptr;
}

const char *MP_NULLABLE mp_postgres_next(const mp_postgres_lease *lease, const char *at, mp_postgres_item *item)
{
    uint32_t len = 0, type = 0;
    const char *end = lease->result.ptr + lease->result.len;
    char tag = *at++;
    *item = (mp_postgres_item){.kind = tag == 'r' ? MP_POSTGRES_ROW : MP_POSTGRES_NULL};
    if (tag == 'k') {
        item->kind = MP_POSTGRES_COUNT;
        memcpy(&item->number, at, sizeof item->number);
        at += sizeof item->number;
    } else if (tag == 'c' || tag == 'v') {
        item->kind = tag == 'c' ? MP_POSTGRES_COLUMN : MP_POSTGRES_CELL;
        memcpy(&len, at, sizeof len);
        item->text = (mp_str){at + sizeof len, len};
        at += sizeof len + len;
    }
    if (tag == 'c') {
        memcpy(&type, at, sizeof type);
        item->number = type;
        at += sizeof type;
    }
    return at < end ? at : NULL;
}
