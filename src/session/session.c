/* The caller's side: orders handed over, events and answers taken back. */
#include "session/tools.h"

#include <lockstep/base/helper_thread.h>
#include <lockstep/base/json.h>
#include <lockstep/base/key.h>

#include <fenv.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- verbs ----------------------------------------------------------------------------------- */

static const struct verb *const verb_lists[] = {verbs_run,  verbs_model,   verbs_tensor,
                                                verbs_plan, verbs_compare, verbs_files};
enum { VERB_LISTS = sizeof verb_lists / sizeof *verb_lists, VERBS_MAX = 64 };

static const struct verb *verb_find(const char *name, struct ls_error *error)
{
    const char *names[VERBS_MAX];
    size_t count = 0;
    for (int i = 0; i < VERB_LISTS; i++)
        for (const struct verb *verb = verb_lists[i]; verb->name; verb++) {
            if (!strcmp(verb->name, name))
                return verb;
            LS_ASSERT(count < VERBS_MAX);
            names[count++] = verb->name;
        }
    const char *near = ls_nearest(name, names, count);
    ls_error_set(error, LS_EINVAL, "%s: there is no such verb%s", name, ls_meant(near, "").text);
    return NULL;
}

/* ---- the session's own thread ---------------------------------------------------------------- */

/* What the caller reads: keys are not a command line's here. */
static struct ls_error error_told(const struct ls_error *error)
{
    struct ls_error told = *error;
    ls_error_unplace(&told);
    return told;
}

void order_done(struct ls_session *s, int status, const struct ls_error *error)
{
    pthread_mutex_lock(&s->lock);
    s->status = status;
    if (status)
        s->error = error_told(error);
    s->under_way = false;
    s->done = s->number;
    pthread_mutex_unlock(&s->lock); /* first, or who wakes waits for it */
    pthread_cond_broadcast(&s->changed);
}

/* The ranks have ended: as they were asked to, or because something failed. */
static void ranks_ended(struct ls_session *s, int status, const struct ls_error *error)
{
    pthread_mutex_lock(&s->lock);
    bool asked = s->under_way;
    s->given_up = status && error->cause == LS_CAUSE_GIVEN_UP;
    s->opened = s->shared = false;
    s->view_count = s->given_up ? s->view_count : 0;
    bool fails = status && status != LS_ESTOPPED && s->order.verb->where != VERB_STARTS;
    if (fails || s->given_up)
        s->broken = error_told(error);
    pthread_mutex_unlock(&s->lock);
    if (asked)
        order_done(s, status, error);
}

static void order_carry_out(struct ls_session *s)
{
    struct ls_error error = {0};
    const struct verb *verb = s->order.verb;
    int status = verb->alone ? verb->alone(s, &error) : LS_OK;
    if (status || verb->where != VERB_STARTS) {
        order_done(s, status, &error);
        return;
    }
    status = session_ranks(s, &error);
    ranks_ended(s, status, &error);
}

static void arrays_release(struct ls_session *s)
{
    for (int i = 0; i < s->array_count; i++)
        if (s->arrays[i].owned)
            free(s->arrays[i].array.data);
    s->array_count = 0;
}

/* Sessions whose memory a rank still uses that was given up: they are kept, and found by who looks
 * for leaks. */
static struct ls_session *_Atomic sessions_kept;

static void session_release(struct ls_session *s)
{
    if (s->given_up) {
        s->next = atomic_exchange(&sessions_kept, s);
        return;
    }
    arrays_release(s);
    json_decref(s->order.options);
    json_decref(s->events);
    json_decref(s->answer);
    free(s->event);
    free(s->answer_text);
    free(s->views);
    for (struct kept *kept = s->kept, *next; kept; kept = next) {
        next = kept->next;
        for (int i = 0; i < kept->ranks; i++)
            ls_arena_release(&kept->arenas[i]);
        free(kept);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void *session_main(void *argument)
{
    struct ls_session *s = argument;
    fesetenv(FE_DFL_ENV); /* rounding and subnormal numbers are not as the caller has them */
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->quits && s->number == s->done)
            pthread_cond_wait(&s->changed, &s->lock);
        if (s->quits)
            break;
        pthread_mutex_unlock(&s->lock);
        order_carry_out(s); /* until the ranks that it starts have ended */
        pthread_mutex_lock(&s->lock);
    }
    bool left = s->left;
    pthread_mutex_unlock(&s->lock);
    if (left)
        session_release(s);
    return NULL;
}

/* ---- making and ending ----------------------------------------------------------------------- */

int ls_session_new(struct ls_session **out, struct ls_error *error)
{
    struct ls_session *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return ls_no_memory(error, "for a session");
    pthread_mutex_init(&s->lock, NULL);
    ls_condition_init(&s->changed);
    s->process = getpid();
    s->events = json_array();
    s->answer = json_object();
    int failed = s->events && s->answer ? ls_helper_start(&s->thread, session_main, s) : 1;
    if (!failed) {
        *out = s;
        return LS_OK;
    }
    s->process = 0; /* it has no thread */
    ls_session_free(s);
    return ls_no_memory(error, "for a session's thread");
}

void ls_session_free(struct ls_session *s)
{
    if (!s)
        return;
    if (s->process == getpid()) { /* a fork has no threads, and what they hold is theirs */
        pthread_mutex_lock(&s->lock);
        s->quits = true;
        s->stop = 1;
        bool left = s->left = s->under_way && s->order.verb->where == VERB_ALONE;
        if (left)
            pthread_detach(s->thread);
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        if (left)
            return;
        pthread_join(s->thread, NULL);
    } else if (s->process)
        return;
    session_release(s);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int admitted(const struct ls_session *s, const struct verb *verb, struct ls_error *error)
{
    bool ranks = verb->where == VERB_RANKS || verb->where == VERB_ENDS;
    if (s->under_way)
        return ls_error_set(error, LS_EINVAL,
                            "%s: \"%s\" is under way, in another thread or a callback: a session "
                            "does one thing at a time",
                            verb->name, s->order.verb->name);
    if (s->given_up) {
        ls_error_set(error, s->broken.code,
                     "%s: a rank did not return, and its thread still uses this session: use "
                     "another one, or start the program again (%s)",
                     verb->name, s->broken.text);
        return ls_error_blame(error, LS_CAUSE_GIVEN_UP, "");
    }
    if (ranks && !s->opened && s->broken.code)
        return ls_error_set(error, s->broken.code, "%s: the ranks have ended: %s", verb->name,
                            s->broken.text);
    if (ranks && !s->opened)
        return ls_error_set(error, LS_EINVAL, "%s: nothing is open", verb->name);
    if (!ranks && s->opened)
        return ls_error_set(error, LS_EINVAL, "%s: close what is open first", verb->name);
    if (verb->trains && s->model)
        return ls_error_set(error, LS_EINVAL, "%s: a model is open, not a run: it is not trained",
                            verb->name);
    return LS_OK;
}

static int options_parse(const struct verb *verb, const char *text, json_t **out,
                         struct ls_error *error)
{
    const char *given = text && *text ? text : "{}", *key;
    json_t *value;
    int status = ls_json_parse(verb->name, given, strlen(given), LS_EINVAL, out, error);
    if (status)
        return status;
    json_t *refused = verb->where == VERB_RANKS ? json_object_get(*out, "refused") : NULL;
    if (json_is_string(refused))
        return ls_error_set(error, LS_EINVAL, "%s", json_string_value(refused));
    json_object_foreach(*out, key, value)
    {
        if (ls_word_among(verb->options, key))
            continue;
        return ls_error_set(error, LS_EINVAL, "%s: %s: there is no such option: expected %s",
                            verb->name, key, *verb->options ? verb->options : "none");
    }
    return LS_OK;
}

static int arrays_read(const struct verb *verb, const struct ls_array *arrays, int count,
                       struct order *order, struct ls_error *error)
{
    if (count > ORDER_ARRAYS_MAX)
        return ls_error_set(error, LS_EINVAL, "%s: %d arrays are too many", verb->name, count);
    for (int i = 0; i < count; i++) {
        if (!ls_word_among(verb->arrays, arrays[i].name))
            return ls_error_set(error, LS_EINVAL, "%s: %s: there is no such array: expected %s",
                                verb->name, arrays[i].name, *verb->arrays ? verb->arrays : "none");
        order->arrays[order->array_count++] = arrays[i];
    }
    return LS_OK;
}

static void order_take(struct ls_session *s, struct order *order)
{
    json_decref(s->order.options);
    arrays_release(s);
    json_object_clear(s->answer);
    s->reported = false;
    s->order = *order;
    order->options = NULL;
}

/* status: of reading the order. If ranks of other processes get it too, an order that is refused
 * here is handed on, so that all refuse it. */
static int ask(struct ls_session *s, struct order *order, int status, struct ls_error *error)
{
    const struct verb *verb = order->verb;
    bool told = s->shared;
    struct ls_error other = {0};
    int admission = admitted(s, verb, &other);
    if (status && (admission || !told))
        return status;
    if (admission)
        return ls_error_copy(error, admission, &other);
    order_take(s, order);
    status = !status && verb->check ? verb->check(s, error) : status;
    if (status && !told)
        return status;
    s->order.status = status;
    if (status && error)
        s->order.refusal = *error;
    if (verb->where == VERB_STARTS)
        s->broken.code = 0;
    if (verb->where == VERB_STARTS || verb->where == VERB_ALONE)
        s->stop = 0;
    s->interrupt = 0;
    s->number++;
    s->under_way = true;
    s->status = LS_OK;
    return LS_OK;
}

int ls_session_ask(struct ls_session *s, const char *name, const char *options,
                   const struct ls_array *arrays, int count, struct ls_error *error)
{
    struct order order = {.verb = verb_find(name, error)};
    if (!order.verb)
        return LS_EINVAL;
    if (s->process != getpid())
        return ls_error_set(error, LS_EINVAL,
                            "%s: this process is a fork of the one that has the ranks: ask there, "
                            "or start a session of its own",
                            name);
    int status = options_parse(order.verb, options, &order.options, error);
    if (!status)
        status = arrays_read(order.verb, arrays, count, &order, error);
    pthread_mutex_lock(&s->lock);
    status = ask(s, &order, status, error);
    pthread_mutex_unlock(&s->lock);
    if (!status)
        pthread_cond_broadcast(&s->changed);
    json_decref(order.options);
    return status;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* The oldest event; false: there is none. */
static bool event_take(struct ls_session *s, const char **event)
{
    if (json_array_size(s->events) == 0)
        return false;
    free(s->event);
    s->event = json_dumps(json_array_get(s->events, 0), JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_array_remove(s->events, 0);
    *event = s->event;
    return s->event != NULL;
}

int ls_session_wait(struct ls_session *s, double seconds, const char **event,
                    struct ls_error *error)
{
    double until = ls_now_s() + seconds;
    int turn = LS_SESSION_WAITS;
    pthread_mutex_lock(&s->lock);
    while (turn == LS_SESSION_WAITS) {
        if (!event)
            json_array_clear(s->events);
        if (event && event_take(s, event))
            turn = LS_SESSION_EVENT;
        else if (!s->under_way)
            turn = s->status;
        else if (ls_condition_wait_until(&s->changed, &s->lock, until))
            break;
    }
    if (turn < 0 && error)
        *error = s->error;
    pthread_mutex_unlock(&s->lock);
    return turn;
}

int ls_session_call(struct ls_session *s, const char *verb, const char *options,
                    const struct ls_array *arrays, int count, struct ls_error *error)
{
    const double long_s = 3600;
    int status = ls_session_ask(s, verb, options, arrays, count, error);
    if (status)
        return status;
    while ((status = ls_session_wait(s, long_s, NULL, error)) > 0)
        ;
    return status;
}

void ls_session_stop(struct ls_session *s)
{
    s->stop = 1;
}

void ls_session_interrupt(struct ls_session *s)
{
    s->interrupt = 1;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Nobody writes to the answer. */
static bool is_over(const struct ls_session *s)
{
    return !s->under_way && !s->given_up;
}

const char *ls_session_answer(struct ls_session *s)
{
    free(s->answer_text);
    if (s->reported && is_over(s))
        answer_report(s);
    s->answer_text =
        is_over(s) ? json_dumps(s->answer, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    return s->answer_text ? s->answer_text : "{}";
}

bool ls_session_report(struct ls_session *s, struct ls_session_report *out)
{
    if (s->process != getpid()) /* of a fork: another thread may have had the lock */
        return false;
    pthread_mutex_lock(&s->lock);
    bool there = s->reported && is_over(s);
    if (there)
        *out = s->report;
    pthread_mutex_unlock(&s->lock);
    return there;
}

bool ls_session_array(struct ls_session *s, const char *name, struct ls_array *out)
{
    for (int i = 0; i < s->array_count && is_over(s); i++)
        if (!strcmp(s->arrays[i].name, name)) {
            *out = s->arrays[i].array;
            return true;
        }
    return false;
}

void ls_session_unview(struct ls_session *s, const char *tensor)
{
    if (s->process != getpid()) /* of a fork: another thread may have had the lock */
        return;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->view_count && is_over(s); i++) {
        struct view *view = &s->views[i];
        if (strcmp(view->name, tensor) || view->count == 0)
            continue;
        view->count--;
        view->let_go = s->number;
        break;
    }
    pthread_mutex_unlock(&s->lock);
}
