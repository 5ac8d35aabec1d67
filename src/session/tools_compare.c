/* The verbs verify, diff and audit: layouts and runs held against each other. */
#include "session/tools.h"

#include <lockstep/compare/audit.h>
#include <lockstep/compare/diff.h>
#include <lockstep/compare/verify.h>
#include <lockstep/train/fit.h>

#include <stdlib.h>

static int no_launcher(const struct ls_session *s, struct ls_error *error)
{
    return ls_mpi_launched() ? ls_error_set(error, LS_ECONFIG,
                                            "%s: ranks are threads of one process here: start it "
                                            "without mpirun",
                                            s->order.verb->name)
                             : LS_OK;
}

static json_t *hash_json(const struct ls_digest *digest)
{
    char hash[33];
    ls_digest_hex(digest, hash);
    return json_string(hash);
}

/* ---- verify ---------------------------------------------------------------------------------- */

struct verifying {
    struct ls_session *session;
    json_t *layouts;
};

static void verified(void *user, const struct ls_verified *told)
{
    static const char *const words[] = {[LS_VERIFY_BEGINS] = "begins",
                                        [LS_VERIFY_EQUAL] = "equal",
                                        [LS_VERIFY_DIFFERS] = "differs",
                                        [LS_VERIFY_FAILED] = "failed"};
    struct verifying *v = user;
    json_t *json = json_pack("{s:I,s:s,s:s,s:f}", "number", (json_int_t)told->number, "layout",
                             told->layout, "result", words[told->as], "bytes", told->bytes);
    json_object_set_new(json, "ranks", json_integer(ls_config_ranks(told->config)));
    if (told->as != LS_VERIFY_BEGINS)
        json_object_set_new(json, "seconds", real_json(told->seconds));
    if (told->as == LS_VERIFY_DIFFERS) {
        json_object_set_new(json, "step", json_integer(told->step));
        json_object_set_new(json, told->traced ? "tensor" : "why", json_string(told->tensor));
    }
    if (told->as == LS_VERIFY_FAILED)
        json_object_set_new(json, "why", json_string(told->why));
    if (told->as != LS_VERIFY_BEGINS && told->number > 0)
        json_array_append(v->layouts, json);
    session_tell(v->session, "layout", json);
}

static int verify_read(struct ls_session *s, struct ls_verify_request *request,
                       struct ls_error *error)
{
    int64_t seed = 1;
    const struct option options[] = {
        {"layouts", .whole = &request->layouts, .least = 1, .most = 1000000},
        {"ranks", .whole = &request->ranks, .least = 2, .most = 1024},
        {"steps", .whole = &request->steps, .least = 1, .most = 1000000},
        {"seed", .whole = &seed, .most = INT64_MAX},
        {0}};
    int status = no_launcher(s, error);
    if (!status)
        status = options_read(&s->order, options, error);
    request->seed = (uint64_t)seed;
    return status;
}

static int verify_alone(struct ls_session *s, struct ls_error *error)
{
    struct ls_config config;
    struct ls_verify *v = calloc(1, sizeof *v);
    struct verifying user = {.session = s, .layouts = json_array()};
    struct ls_verify_request request = {.layouts = 50,
                                        .ranks = 8,
                                        .steps = 3,
                                        .stop = &s->stop,
                                        .told = verified,
                                        .user = &user,
                                        .config = &config};
    int status = v ? verify_read(s, &request, error) : ls_no_memory(error, "to verify");
    if (!status)
        status = tool_config(s, false, &config, error);
    if (!status)
        status = ls_verify_open(v, &request, error);
    if (!status)
        status = ls_verify_run(v, error);
    if (!status) {
        answer_set(s, "hash", hash_json(&v->reference[request.steps - 1].hash));
        answer_set(s, "equal", json_boolean(v->differ + v->failed == 0));
        answer_set(s, "differ", json_integer(v->differ));
        answer_set(s, "failed", json_integer(v->failed));
        answer_set(s, "too_large", json_integer(v->too_large));
    }
    answer_set(s, "layouts", user.layouts);
    if (v)
        ls_verify_release(v);
    free(v);
    return status;
}

/* ---- diff ------------------------------------------------------------------------------------ */

static void rerun_answer(struct ls_session *s, const struct ls_diff *d)
{
    answer_set(s, "tensor", *d->tensor ? json_string(d->tensor) : json_null());
    answer_set(s, "tensor_step", d->step ? json_integer(d->step) : json_null());
    answer_set(s, "a_reproduced", json_boolean(d->run[0].check.step == 0));
    answer_set(s, "b_reproduced", json_boolean(d->run[1].check.step == 0));
}

static void records_answer(struct ls_session *s, const struct ls_run_difference *found)
{
    int64_t step = found->step ? found->step : found->stray_step;
    answer_set(s, "step", found->step || found->strays ? json_integer(step) : json_null());
    answer_set(s, "compared", json_integer(found->compared));
    answer_set(s, "last", json_integer(found->last));
    answer_set(s, "loss", json_boolean(found->loss));
    answer_set(s, "hash",
               json_boolean(found->hash || (found->strays && step == found->stray_step)));
    answer_set(s, "hash_equal_to", found->equal ? json_integer(found->equal) : json_null());
}

static int diff_alone(struct ls_session *s, struct ls_error *error)
{
    struct ls_diff *d = calloc(1, sizeof *d);
    const char *a = NULL, *b = NULL;
    bool force = false, again = true;
    const struct option options[] = {{"a", .text = &a, .needs = "a run's folder"},
                                     {"b", .text = &b, .needs = "a run's folder"},
                                     {"force", .flag = &force},
                                     {"rerun", .flag = &again},
                                     {0}};
    int status = d ? no_launcher(s, error) : ls_no_memory(error, "to compare");
    if (!status)
        status = options_read(&s->order, options, error);
    if (!status)
        status = ls_diff_open(d, a, b, force, error);
    if (d)
        answer_set(s, "recipe", json_string(d->recipe));
    if (!status)
        records_answer(s, &d->found);
    if (!status && again && d->found.step) {
        status = ls_diff_rerun(d, NULL, NULL, error);
        if (!status)
            rerun_answer(s, d);
    }
    if (d)
        ls_diff_release(d);
    free(d);
    return status;
}

/* ---- audit ----------------------------------------------------------------------------------- */

static int request_read(struct ls_session *s, struct ls_audit_request *request,
                        struct order_keys *keys, struct ls_error *error)
{
    const struct option options[] = {
        {"run", .text = &request->run, .needs = "a run's folder"},
        {"first", .whole = &request->from, .least = 1, .most = INT64_MAX},
        {"last", .whole = &request->to, .least = 1, .most = INT64_MAX},
        {"whole", .flag = &request->whole},
        {0}};
    int status = options_read(&s->order, options, error);
    bool steps = request->from || request->to;
    if (!status && steps && (!request->from || request->whole))
        status = ls_error_set(error, LS_EINVAL,
                              request->whole ? "audit: whole: expected neither first nor last with "
                                               "it: it means all steps"
                                             : "audit: last: expected first with it, the first of "
                                               "the steps that are compared");
    request->to = request->to ? request->to : request->from;
    if (!status && request->to < request->from)
        status = ls_error_set(error, LS_EINVAL, "audit: steps %ld to %ld: none are between",
                              (long)request->from, (long)request->to);
    if (!status)
        status = order_keys_read(&s->order, keys, error);
    request->keys = (const char *const *)keys->word;
    request->key_count = (int)keys->count;
    return status;
}

static void verdict_answer(struct ls_session *s, const struct ls_audit *audit,
                           const struct ls_audit_verdict *verdict)
{
    char layout[1024];
    const struct ls_rerun_check *check = &verdict->check;
    ls_config_layout_text(&audit->config, NULL, layout, sizeof layout);
    answer_set(s, "equal", json_boolean(verdict->equal));
    answer_set(s, "first", json_integer(audit->from));
    answer_set(s, "last", json_integer(audit->to));
    answer_set(s, "layout", json_string(layout));
    answer_set(s, "step", check->step ? json_integer(check->step) : json_null());
    answer_set(s, "losses", json_integer(check->losses));
    answer_set(s, "norms", json_integer(check->norms));
    answer_set(s, "hashes", json_integer(check->hashes));
    answer_set(s, "differs",
               json_pack("{s:b,s:b,s:b,s:b,s:b}", "loss", check->loss, "norm", check->norm, "hash",
                         check->hash, "samples", check->ledger, "checkpoint",
                         verdict->checkpoint_differs));
    answer_set(s, "chain",
               audit->run.chain.broken ? json_string(audit->run.chain.why) : json_null());
}

static int audit_alone(struct ls_session *s, struct ls_error *error)
{
    struct ls_audit *audit = calloc(1, sizeof *audit);
    struct ls_audit_request request = {0};
    struct ls_audit_verdict verdict = {0};
    struct order_keys keys = {0};
    struct ls_rerun *again = NULL;
    double bytes;
    int status = audit ? no_launcher(s, error) : ls_no_memory(error, "to audit");
    if (!status)
        status = request_read(s, &request, &keys, error);
    if (!status)
        status = ls_audit_open(audit, &request, error);
    if (!status)
        status = ls_memory_here(&audit->config, &bytes, error);
    if (!status)
        status =
            ls_rerun_new(&audit->config, audit->checkpoint, INT64_MAX, audit->to, &again, error);
    if (!status)
        status = ls_audit_judge(audit, again, &verdict, error);
    if (!status)
        verdict_answer(s, audit, &verdict);
    order_keys_release(&keys);
    ls_rerun_free(again);
    if (audit)
        ls_audit_release(audit);
    free(audit);
    return status;
}

const struct verb verbs_compare[] = {
    {"verify", "config|keys|layouts|ranks|steps|seed", "", VERB_ALONE, .alone = verify_alone},
    {"diff", "a|b|force|rerun", "", VERB_ALONE, .alone = diff_alone},
    {"audit", "run|first|last|whole|keys", "", VERB_ALONE, .alone = audit_alone},
    {0}};
