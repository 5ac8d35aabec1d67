/* A session's verbs without ranks: plans, layouts, proofs, conversions, stores; what is wrong with
 * an order is said, and the next one is carried out. */
#include "../support/scratch.h"
#include "../support/suite.h"

#include <jansson.h>
#include <lockstep/session.h>
#include <stdio.h>
#include <string.h>

#define MODEL                                                                                      \
    "\"model\": {\"arch\": \"gpt2\", \"layers\": 2, \"channels\": 32, \"heads\": 4, \
\"context\": 32, \"vocab\": 257}, \"numerics\": {\"arithmetic\": \"fma\"}, \"batch\": \
{\"global\": 4}"

/* The answer of an order; NULL and its text in error if it failed. */
static json_t *ask(const char *verb, const char *options, struct ls_error *error)
{
    struct ls_session *session;
    assert_int_equal(ls_session_new(&session, error), LS_OK);
    int status = ls_session_call(session, verb, options, NULL, 0, error);
    json_t *answer = status ? NULL : json_loads(ls_session_answer(session), 0, NULL);
    ls_session_free(session);
    return answer;
}

static const char *text_of(const json_t *answer, const char *key)
{
    const char *text = json_string_value(json_object_get(answer, key));
    assert_non_null(text);
    return text;
}

static json_int_t number_of(const json_t *answer, const char *key)
{
    assert_true(json_is_integer(json_object_get(answer, key)));
    return json_integer_value(json_object_get(answer, key));
}

static void refused(const char *verb, const char *options, int status, const char *expected)
{
    struct ls_error error = {0};
    json_t *answer = ask(verb, options, &error);
    if (answer || error.code != status || !strstr(error.text, expected))
        fail_msg("%s %s: %d \"%s\": expected %d \"%s\"", verb, options, error.code, error.text,
                 status, expected);
}

CASE(test_a_plan_has_the_best_layout)
{
    struct ls_error error = {0};
    json_t *answer = ask("plan",
                         "{\"keys\": {\"model\": {\"preset\": \"gpt2-124m\"}, \"batch\": "
                         "{\"global\": 16}}, \"cluster\": \"clusters/h100-2048.yaml\", "
                         "\"accelerators\": 4, \"top\": 2, \"seconds\": 0, \"draw\": true}",
                         &error);
    assert_string_equal(error.text, "");
    json_t *plans = json_object_get(answer, "plans");
    assert_int_equal(json_array_size(plans), 2);
    assert_non_null(strstr(text_of(json_array_get(plans, 1), "reason"), "slower"));
    assert_non_null(strstr(text_of(answer, "svg"), "<svg"));
    assert_non_null(strstr(text_of(answer, "yaml"), "gpt2-124m"));
    json_decref(answer);
}

CASE(test_a_layout_is_described_and_proven)
{
    struct ls_error error = {0};
    json_t *answer = ask("layout",
                         "{\"keys\": {" MODEL ", \"parallel\": {\"pp\": 2, \"dp\": 2}}, \"check\": "
                         "true, \"draw\": true}",
                         &error);
    assert_string_equal(error.text, "");
    assert_int_equal(number_of(answer, "ranks"), 4);
    assert_int_equal(json_array_size(json_object_get(answer, "pp_ranks")), 2);
    assert_int_equal(number_of(json_object_get(answer, "proof"), "ranks"), 4);
    assert_non_null(strstr(text_of(answer, "memory_svg"), "<svg"));
    json_decref(answer);
}

CASE_WITH(test_texts_become_stores_on_which_layouts_agree, scratch_setup, scratch_teardown)
{
    char options[1024], text[600];
    const char *folder = *state;
    struct ls_error error = {0};
    snprintf(text, sizeof text, "%s/text.txt", folder);
    FILE *file = fopen(text, "w");
    assert_non_null(file);
    for (int i = 0; i < 300; i++)
        fprintf(file, "%d and %d. ", i, i + 1);
    assert_int_equal(fclose(file), 0);
    snprintf(options, sizeof options,
             "{\"inputs\": [\"%s\"], \"output\": \"%s/store\", \"tokenizer\": \"byte\", "
             "\"validation\": 0}",
             text, folder);
    json_t *answer = ask("prepare", options, &error);
    assert_string_equal(error.text, "");
    assert_int_equal(number_of(json_object_get(answer, "train"), "documents"), 1);
    json_decref(answer);
    snprintf(options, sizeof options,
             "{\"keys\": {" MODEL ", \"data\": {\"train\": \"%s/store_train\", \"sequence\": 16}}, "
             "\"layouts\": 2, \"ranks\": 2, \"steps\": 1}",
             folder);
    answer = ask("verify", options, &error);
    assert_string_equal(error.text, "");
    assert_true(json_is_true(json_object_get(answer, "equal")));
    assert_int_equal(json_array_size(json_object_get(answer, "layouts")), 2);
    assert_int_equal(strlen(text_of(answer, "hash")), 32);
    json_decref(answer);
}

CASE(test_a_conversion_lists_the_fates)
{
    struct ls_error error = {0};
    struct ls_session *session;
    json_t *answer = ask("convert",
                         "{\"project\": \"deepspeed\", \"text\": \"{\\\"train_batch_size\\\": 8}\","
                         " \"ranks\": 2}",
                         &error);
    assert_string_equal(error.text, "");
    assert_non_null(strstr(text_of(answer, "yaml"), "global: 8"));
    json_decref(answer);
    /* Refused keys are in the answer, too. */
    assert_int_equal(ls_session_new(&session, &error), LS_OK);
    assert_int_equal(ls_session_call(session, "convert",
                                     "{\"project\": \"deepspeed\", \"text\": \"{\\\"foo\\\": 8}\"}",
                                     NULL, 0, &error),
                     LS_ECONFIG);
    answer = json_loads(ls_session_answer(session), 0, NULL);
    assert_string_equal(text_of(json_array_get(json_object_get(answer, "items"), 0), "fate"),
                        "unknown");
    json_decref(answer);
    ls_session_free(session);
}

/* null is what it is in a file: no text. */
CASE(test_keys_that_are_null)
{
    struct ls_error error = {0};
    json_t *answer =
        ask("configure", "{\"keys\": {" MODEL ", \"train\": {\"out\": null, \"resume\": null}}}",
            &error);
    assert_string_equal(error.text, "");
    const char *yaml = text_of(answer, "yaml");
    assert_non_null(strstr(yaml, "resume: \"\""));
    assert_null(strstr(yaml, "null"));
    json_decref(answer);
}

CASE(test_what_is_wrong_is_said)
{
    refused("layout", "{\"keys\": {" MODEL ", \"parallel\": {\"tp\": 3}}}", LS_ELAYOUT,
            "parallel.tp = 3");
    refused("layout", "{\"keys\": {\"optim\": {\"lrr\": 1}}}", LS_ECONFIG, "did you mean optim.lr");
    refused("layout", "{\"keys\": {\"steps\": 1}}", LS_ECONFIG, "expected a group");
    refused("layout", "{\"keys\": {\"data\": {\"train\": [\"a\", \"b\"]}}}", LS_ECONFIG,
            "data.train: expected one value, not a list");
    refused("layout", "{\"keys\": {\"train\": {\"steps\": null}}}", LS_ECONFIG,
            "train.steps = null");
    refused("layout", "{\"config\": \"nowhere.yaml\"}", LS_EIO, "nowhere.yaml");
    refused("plan", "{\"goal\": \"speed\"}", LS_EINVAL, "goal: expected");
    refused("plan", "{\"cluster\": 3}", LS_EINVAL, "cluster: expected a text");
    refused("verify", "{\"layouts\": 0}", LS_EINVAL, "layouts: expected a whole number");
    refused("diff", "{\"a\": \"nowhere\"}", LS_EINVAL, "b: expected");
    refused("audit", "{\"run\": \"nowhere\", \"first\": 3, \"last\": 2}", LS_EINVAL, "3 to 2");
    refused("audit", "{\"run\": \"nowhere\", \"last\": 3}", LS_EINVAL,
            "audit: last: expected first with it");
    refused("audit", "{\"run\": \"nowhere\", \"first\": 3, \"whole\": true}", LS_EINVAL,
            "audit: whole: expected neither first nor last with it");
    refused("convert", "{\"project\": \"nanogpt\"}", LS_EINVAL, "project: expected");
    refused("convert", "{\"project\": \"megatron\"}", LS_EINVAL, "expected a file, or a text");
    refused("report", "{\"runs\": []}", LS_EINVAL, "runs: expected");
    refused("report", "{\"runs\": [1]}", LS_EINVAL, "runs: expected");
    refused("import", "{\"from\": \"nowhere\"}", LS_EINVAL, "out: expected");
    refused("prepare",
            "{\"inputs\": [\"x\"], \"output\": \"o\", \"tokenizer\": \"byte\", "
            "\"validation\": 1}",
            LS_EINVAL, "validation: expected");
    refused("score", "{\"requests\": []}", LS_EINVAL, "nothing is open");
}

SUITE_MAIN(NULL, NULL)
