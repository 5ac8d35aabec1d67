/* Verbs of a run and of a model: what they are, token ids and texts, files of other programs. */
#include "session/session_private.h"

#include <lockstep/ckpt.h>
#include <lockstep/interop.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct ls_runner *rank_runner(struct rank *rank)
{
    return rank->trainer ? ls_trainer_runner(rank->trainer) : ls_finished_runner(rank->finished);
}

const struct ls_tokenizer *rank_tokenizer(struct rank *rank)
{
    return rank->trainer ? ls_trainer_tokenizer(rank->trainer)
                         : ls_runner_tokenizer(rank_runner(rank));
}

const struct ls_model_config *rank_model(const struct rank *rank)
{
    return rank->trainer ? &ls_trainer_layout(rank->trainer)->model
                         : ls_finished_model(rank->finished);
}

/* ---- a model --------------------------------------------------------------------------------- */

static int model_configure(struct ls_session *s, struct ls_error *error)
{
    struct order_keys keys = {0};
    int status = order_keys_read(&s->order, &keys, error);
    if (!status)
        status = ls_finished_configure(s->path, LS_TO_EVALUATE, (const char *const *)keys.word,
                                       (int)keys.count, &s->config, error);
    order_keys_release(&keys);
    return status;
}

static int open_model_alone(struct ls_session *s, struct ls_error *error)
{
    const char *path = NULL, *which = NULL;
    int form = LS_QUANTIZE_NONE;
    const struct option options[] = {{"path", .text = &path, .needs = "a run or a folder"},
                                     {"which", .text = &which},
                                     {"quantize", .word = &form, .words = ls_quantizes},
                                     {0}};
    int status = options_read(&s->order, options, error);
    if (status)
        return status;
    snprintf(s->path, sizeof s->path, "%s", path);
    snprintf(s->which, sizeof s->which, "%s", which ? which : "");
    s->choice = (struct ls_finished_choice){.which = which ? s->which : NULL,
                                            .quantize = (enum ls_quantize)form};
    s->model = true;
    status = model_configure(s, error);
    char absolute[PATH_MAX]; /* the program may change its working directory */
    if (!status && ls_path_absolute(path, absolute) && strlen(absolute) < sizeof s->path)
        snprintf(s->path, sizeof s->path, "%s", absolute);
    return status;
}

static int open_model_run(struct rank *rank, struct ls_error *error)
{
    struct ls_session *s = rank->session;
    int status = ls_finished_new(&s->config, s->path, &s->choice, rank->world, &rank->log,
                                 &rank->finished, error);
    if (!status)
        describe(rank);
    return status;
}

void describe(struct rank *rank)
{
    struct ls_session *s = rank->session;
    const struct ls_model_config *model = rank_model(rank);
    const struct ls_tokenizer *tokenizer = rank_tokenizer(rank);
    const struct ls_config *config = &s->config;
    if (!rank->speaks)
        return;
    int64_t step = rank->run ? ls_trainer_steps(rank->trainer) : ls_finished_step(rank->finished);
    answer_set(s, "step", json_integer(step));
    answer_set(s, "steps", json_integer(rank->run ? ls_config_steps(config) : step));
    answer_set(s, "ended", json_boolean(!rank->run || ls_run_ended(rank->run)));
    answer_set(s, "out", json_string(config->train.out));
    answer_set(s, "ranks", json_integer(ls_comm_size(rank->world)));
    answer_set(s, "rank", json_integer(ls_comm_rank(rank->world)));
    answer_set(s, "transport", json_string(ls_transport_name(ls_comm_transport(rank->world))));
    answer_set(s, "batch", json_integer(config->batch.global));
    answer_set(s, "sequence", json_integer(config->data.sequence));
    answer_set(s, "precision", json_string(ls_config_precision(config)));
    answer_set(s, "family", json_string(ls_arch_name(model->arch)));
    answer_set(s, "vocabulary", json_integer(model->vocab));
    answer_set(s, "context", json_integer(model->context));
    answer_set(s, "layers", json_integer(model->layers));
    answer_set(s, "channels", json_integer(model->channels));
    answer_set(s, "tokenizer", json_boolean(tokenizer != NULL));
    if (tokenizer && ls_tokenizer_eod(tokenizer) >= 0)
        answer_set(s, "end_of_document", json_integer(ls_tokenizer_eod(tokenizer)));
    if (tokenizer && ls_tokenizer_eos(tokenizer) >= 0)
        answer_set(s, "end_of_text", json_integer(ls_tokenizer_eos(tokenizer)));
    char *yaml = NULL;
    if (!ls_config_text(config, &yaml, NULL))
        answer_set(s, "yaml", json_string(yaml));
    free(yaml);
}

static int describe_run(struct rank *rank, struct ls_error *error)
{
    (void)error;
    describe(rank);
    return LS_OK;
}

/* ---- ids and texts --------------------------------------------------------------------------- */

static int tokenizer_require(struct rank *rank, struct ls_error *error)
{
    return rank_tokenizer(rank)
               ? LS_OK
               : ls_error_set(error, LS_ECONFIG,
                              "text needs the tokenizer that made the model's data, and none is "
                              "known: name it with data.tokenizer, or give ids");
}

static int texts_encode(const json_t *texts, struct ls_encoder *encoder,
                        const struct ls_encode_options *options, json_t *out,
                        struct ls_error *error)
{
    int status = LS_OK;
    for (size_t i = 0; i < json_array_size(texts) && !status; i++) {
        const json_t *text = json_array_get(texts, i);
        struct ls_token_list ids = {0};
        if (!json_is_string(text))
            return ls_error_set(error, LS_EINVAL, "encode: texts: entry %zu is no text", i);
        status = ls_encode_with(encoder, json_string_value(text), json_string_length(text), options,
                                &ids, error);
        if (!status)
            json_array_append_new(out, ids_json(ids.ids, ids.count));
        ls_token_list_release(&ids);
    }
    return status;
}

static int encode_run(struct rank *rank, struct ls_error *error)
{
    const struct order *order = &rank->session->order;
    const json_t *texts = NULL;
    struct ls_encoder *encoder = NULL;
    struct ls_encode_options options = {.special = true};
    const struct option special[] = {{"special_tokens", .flag = &options.special}, {0}};
    const struct option asked[] = {
        {"around", .flag = &options.around}, {"texts", .list = &texts}, {0}};
    int status = tokenizer_require(rank, error);
    if (!status)
        status = options_read(order, special, error);
    options.around = options.special;
    if (!status)
        status = options_read(order, asked, error);
    if (status || !rank->speaks)
        return status;
    json_t *ids = json_array();
    status = ls_encoder_new(rank_tokenizer(rank), &encoder, error);
    if (!status)
        status = texts_encode(texts, encoder, &options, ids, error);
    ls_encoder_free(encoder);
    answer_set(rank->session, "ids", ids);
    return status;
}

/* The ids of one list; LS_EINVAL if it is none. */
static int ids_decode(struct rank *rank, const json_t *list, struct ls_text *text,
                      struct ls_error *error)
{
    size_t count = json_array_size(list);
    int32_t *ids = calloc(count + 1, sizeof *ids);
    int status = ids ? LS_OK : ls_no_memory(error, "for %zu ids", count);
    for (size_t i = 0; i < count && !status; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            status = ls_error_set(error, LS_EINVAL, "decode: ids: expected lists of token ids");
        ids[i] = (int32_t)json_integer_value(id);
    }
    if (!status)
        status = ls_decode(rank_tokenizer(rank), ids, (int64_t)count, text, error);
    free(ids);
    return status;
}

static int decode_run(struct rank *rank, struct ls_error *error)
{
    const json_t *lists = NULL;
    const struct option options[] = {{"ids", .list = &lists}, {0}};
    int status = tokenizer_require(rank, error);
    if (!status)
        status = options_read(&rank->session->order, options, error);
    if (status || !rank->speaks)
        return status;
    json_t *texts = json_array();
    for (size_t i = 0; i < json_array_size(lists) && !status; i++) {
        struct ls_text text = {0};
        status = ids_decode(rank, json_array_get(lists, i), &text, error);
        if (!status)
            json_array_append_new(texts, text_json(text.bytes, (size_t)text.count));
        ls_text_release(&text);
    }
    answer_set(rank->session, "texts", texts);
    return status;
}

/* ---- files of other programs ----------------------------------------------------------------- */

static int export_read(const struct order *order, struct ls_export *what, struct ls_error *error)
{
    static const struct ls_word formats[] = {{"hf", LS_EXPORT_HF},
                                             {"peft", LS_EXPORT_PEFT},
                                             {"llmc", LS_EXPORT_LLMC},
                                             {"gguf", LS_EXPORT_GGUF},
                                             {0}},
                                types[] = {{"fp32", LS_F32},
                                           {"bf16", LS_BF16},
                                           {"fp16", LS_F16},
                                           {"int8", LS_I8},
                                           {0}};
    int form = LS_EXPORT_HF, type = LS_F32;
    const struct option options[] = {
        {"out", .text = &what->out, .needs = "where it is to be written"},
        {"format", .word = &form, .words = formats},
        {"dtype", .word = &type, .words = types},
        {0}};
    int status = options_read(order, options, error);
    what->format = (enum ls_export_format)form;
    what->dtype = (enum ls_dtype)type;
    return status;
}

/* Of a run: of a checkpoint of its state as it is now. Of a model: of the step that was opened,
 * though its run may have saved others since. */
static int export_run(struct rank *rank, struct ls_error *error)
{
    struct ls_session *s = rank->session;
    char step[32];
    struct stat of;
    bool folder = !stat(s->path, &of) && S_ISDIR(of.st_mode); /* checkpoints/best is none */
    bool chosen =
        !rank->run && !ls_model_is_foreign(s->path) && !(folder && ls_checkpoint_is_one(s->path));
    struct ls_export what = {.from = rank->run ? ls_run_folder(rank->run) : s->path,
                             .which = chosen ? step : NULL,
                             .log = &rank->log};
    struct ls_export_report report = {0};
    int status = export_read(&s->order, &what, error);
    if (chosen)
        snprintf(step, sizeof step, "%lld", (long long)ls_finished_step(rank->finished));
    status = ls_comm_agree(rank->world, status, error); /* each process has its own options */
    if (!status && rank->run)
        status = ls_run_save(rank->run, error);
    if (status)
        return status;
    status = rank->first ? ls_export(&what, &report, error) : LS_OK;
    if (!status && rank->speaks)
        answer_set(s, "tensors", json_integer(report.tensors));
    return status;
}

/* ---- between processes ----------------------------------------------------------------------- */

static int share_run(struct rank *rank, struct ls_error *error)
{
    struct ls_session *s = rank->session;
    const struct ls_array *value = order_array(&s->order, "value");
    bool fits = value && !strcmp(value->dtype, "u1") && value->dims == 1;
    int64_t count = fits ? value->shape[0] : 0;
    void *data = NULL;
    int status = fits ? LS_OK : ls_error_set(error, LS_EINVAL, "share: value: expected bytes (u1)");
    status = ls_comm_agree(rank->world, status, error); /* each process has its own value */
    if (!status)
        status = ls_all_reduce_max(rank->world, &count, error);
    if (!status && count != value->shape[0])
        status = ls_error_set(error, LS_EINVAL, "share: value: all processes give as many bytes");
    if (!status && rank->speaks)
        status = answer_array(s, "value", "u1", 1, &count, &data, true, error);
    status = ls_comm_agree(rank->world, status, error);
    if (status)
        return status;
    if (rank->speaks)
        memcpy(data, value->data, (size_t)count);
    if (ls_comm_transport(rank->world) != LS_TRANSPORT_MPI)
        return LS_OK;
    return ls_broadcast(rank->world, data, count, LS_U8, 0, error);
}

const struct verb verbs_model[] = {
    {"open_model", "path|keys|which|quantize", "", VERB_STARTS, .alone = open_model_alone,
     .run = open_model_run},
    {"describe", "", "", VERB_RANKS, .run = describe_run},
    {"encode", "texts|special_tokens|around", "", VERB_RANKS, .own = true, .run = encode_run},
    {"decode", "ids", "", VERB_RANKS, .own = true, .run = decode_run},
    {"generate",
     "prompts|samples|max_tokens|temperature|top_k|top_p|seed|stop|ends|batch|"
     "special_tokens|truncate|scaled",
     "ids|lengths", VERB_RANKS, .one_model = true, .interrupted = true, .check = prompts_check,
     .run = generate_run},
    {"logprobs", "temperature|entropy", "ids|lengths", VERB_RANKS, .one_model = true,
     .interrupted = true, .check = rows_check, .run = logprobs_run},
    {"score", "requests|truncate", "", VERB_RANKS, .one_model = true, .interrupted = true,
     .run = score_run},
    {"export", "out|format|dtype", "", VERB_RANKS, .own = true, .run = export_run},
    {"share", "", "value", VERB_RANKS, .run = share_run},
    {0}};
