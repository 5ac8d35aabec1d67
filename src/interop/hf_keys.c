/* config.json and the configuration's group `model`: one table of the keys that all families have,
 * before which a family's own goes (struct ls_hf_key in lockstep/nn.h), read in both directions. */
#include "interop/interop_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NO_EFFECT(names)                                                                           \
    {                                                                                              \
        names, NULL, "", NULL                                                                      \
    }
/* Changes results unless it has this value. */
#define ONLY(name, value)                                                                          \
    {                                                                                              \
        name, NULL, value, NULL                                                                    \
    }

static const struct ls_hf_key common[] = {
    {"num_hidden_layers", "layers", NULL, NULL},
    {"hidden_size", "channels", NULL, NULL},
    {"num_attention_heads", "heads", NULL, NULL},
    {"num_key_value_heads", "kv_heads", "", NULL},
    {"head_dim", "head_dim", "", NULL},
    {"intermediate_size", "ffn", NULL, NULL},
    {"max_position_embeddings", "context", NULL, NULL},
    {"vocab_size", "vocab", NULL, NULL},
    {"tie_word_embeddings", "tied", "", NULL},
    {"initializer_range", "init_std", "", NULL},
    ONLY("quantization_config", "null"),
    ONLY("compression_config", "null"),
    ONLY("is_encoder_decoder", "false"),
    ONLY("is_decoder", "false"),
    ONLY("is_causal", "true"),
    ONLY("per_layer_config", "null"),
    ONLY("add_cross_attention", "false"),
    ONLY("partial_rotary_factor", "1"),
    ONLY("attention_bias", "false"),
    ONLY("attn_logit_softcapping", "null"),
    ONLY("final_logit_softcapping", "null"),
    ONLY("logit_scale", "1"),
    ONLY("logits_scaling", "1"),
    ONLY("embedding_multiplier", "1"),
    ONLY("residual_multiplier", "1"),
    ONLY("attention_multiplier", "null"),
    ONLY("clip_qkv", "null"),
    ONLY("use_qk_norm", "false"),
    ONLY("no_rope_layers", "null"),
    ONLY("num_local_experts", "null"),
    ONLY("num_experts", "null"),
    ONLY("use_sliding_window", "false"),
    ONLY("use_bidirectional_attention", "false"),
    ONLY("layer_types", "[\"full_attention\"]"),
    /* Names and versions; the first two are read before the others. */
    NO_EFFECT("model_type|architectures|dtype|torch_dtype|transformers_version|_name_or_path|"
              "name_or_path|_commit_hash|attn_implementation|_attn_implementation|"
              "_attn_implementation_autoset|use_cache|cache_implementation"),
    /* Of programs beside transformers, and what transformers takes from other keys. */
    NO_EFFECT("transformers.js_config|is_llama_config|unsloth_version|unsloth_fixed|"
              "sliding_window_size"),
    /* Compared with that of rope_parameters. */
    NO_EFFECT("original_max_position_embeddings"),
    /* Tokens of text, with generation_config.json. */
    NO_EFFECT("bos_token_id|eos_token_id|pad_token_id|sep_token_id|decoder_start_token_id"),
    /* Dropout is chosen where a model is trained. */
    NO_EFFECT(
        "attention_dropout|hidden_dropout|classifier_dropout|attn_pdrop|embd_pdrop|resid_pdrop"),
    /* What transformers' functions return, and keys of classifiers. */
    NO_EFFECT("output_attentions|output_hidden_states|return_dict|chunk_size_feed_forward|"
              "torchscript|id2label|label2id|problem_type|finetuning_task|task_specific_params"),
    /* Generation, in files of old. */
    NO_EFFECT("temperature|top_k|top_p|do_sample|max_length|max_new_tokens|repetition_penalty"),
    {0},
};
/* ---- the tables ------------------------------------------------------------------------------ */

/* The rows that count for a family, one after the other: its own, then those of all whose name or
 * key none of its own has. Begin with {0}. */
struct key_rows {
    const struct ls_hf_key *own, *next;
    bool all;
};

static bool own_has(const struct ls_hf_key *own, const struct ls_hf_key *row)
{
    for (; own->name; own++)
        if (ls_word_among(own->name, row->name) ||
            (own->key && row->key && !strcmp(own->key, row->key)))
            return true;
    return false;
}

static const struct ls_hf_key *rows_next(struct key_rows *rows, enum ls_arch arch)
{
    if (!rows->own)
        rows->own = rows->next = ls_family_of(arch)->hf.keys;
    if (!rows->all && !rows->next->name) {
        rows->all = true;
        rows->next = common;
    }
    while (rows->all && rows->next->name && own_has(rows->own, rows->next))
        rows->next++;
    return rows->next->name ? rows->next++ : NULL;
}

/* ---- in -------------------------------------------------------------------------------------- */

int interop_family(const json_t *description, const char *name, enum ls_arch *arch,
                   struct ls_error *error)
{
    const json_t *type = json_object_get(description, "model_type");
    const char *word = json_string_value(type);
    char list[256] = "";
    for (int i = 0; i < LS_ARCHES; i++) {
        const struct ls_family_hf *hf = &ls_family_of((enum ls_arch)i)->hf;
        if (!hf->model_type)
            continue;
        if (word && !strcmp(word, hf->model_type)) {
            *arch = (enum ls_arch)i;
            return LS_OK;
        }
        ls_string_add(list, sizeof list, ", ", "%s", hf->model_type);
    }
    return ls_error_set(error, LS_ECONFIG, "%.300s: model_type = %s: expected a family of: %s%s",
                        name, interop_json_text(type).text, list,
                        word ? ls_family_lacks(word) : "");
}

/* Whether the word names the model of `wanted` without its head, as AutoModel saves it: LlamaModel
 * of LlamaForCausalLM. */
static bool is_base(const char *word, const char *wanted)
{
    const char *head = strstr(wanted, "ForCausalLM"), *most = strstr(wanted, "LMHeadModel");
    size_t stem = (size_t)((head ? head : most) - wanted);
    return !strncmp(word, wanted, stem) &&
           (!strcmp(word + stem, "Model") || !strcmp(word + stem, "TextModel"));
}

static int architecture_check(const struct interop_keys *keys)
{
    const json_t *list = json_object_get(keys->description, "architectures");
    const char *wanted = ls_family_of(keys->arch)->hf.architecture;
    size_t i;
    const json_t *item;
    if (!list || json_is_null(list) || (json_is_array(list) && json_array_size(list) == 0))
        return LS_OK;
    json_array_foreach(list, i, item)
    {
        const char *word = json_string_value(item);
        if (word && (!strcmp(word, wanted) || is_base(word, wanted)))
            return LS_OK;
    }
    return ls_error_set(keys->error, LS_ECONFIG, "%.300s: architectures = %s: expected %s",
                        keys->name, interop_json_text(list).text, wanted);
}

/* The words that may stand there, or here, for an error. */
static void words_list(const char *words, char *list, size_t bytes)
{
    list[0] = '\0';
    while (*words) {
        size_t length = strcspn(words, " "), theirs = strcspn(words, "=");
        ls_string_add(list, bytes, ", ", "%.*s", (int)theirs, words);
        words += length + (words[length] == ' ');
    }
}

/* Whether what has no word is the same there and here. */
static bool words_end_open(const char *words)
{
    return words[strlen(words) - 1] == '*';
}

/* The word here for the one there (or the other way round); false if there is none. */
static bool word_find(const char *words, const char *word, bool there, char *out, size_t bytes)
{
    for (; *words && *words != '*'; words += strspn(words, " ")) {
        size_t length = strcspn(words, " "), equals = strcspn(words, "=");
        const char *first = words, *second = words + equals + 1;
        size_t first_length = equals, second_length = length - equals - 1;
        second_length -= there && words[length - 1] == '?';
        const char *key = there ? first : second, *value = there ? second : first;
        size_t key_length = there ? first_length : second_length;
        size_t value_length = there ? second_length : first_length;
        if (strlen(word) == key_length && !strncmp(word, key, key_length)) {
            snprintf(out, bytes, "%.*s", (int)value_length, value);
            return true;
        }
        words += length;
    }
    return false;
}

/* A value as the configuration reads it; false if it is no scalar. */
static bool value_text(const json_t *value, char *text, size_t bytes)
{
    if (json_is_string(value))
        snprintf(text, bytes, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, bytes, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, bytes, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(text, bytes, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_null(value))
        snprintf(text, bytes, "null");
    else
        return false;
    return true;
}

static const char *value_of(const struct ls_config *config, const struct ls_config_key *key,
                            char *text, size_t bytes)
{
    ls_config_value(config, key, text, bytes);
    return text;
}

int interop_key_set(struct interop_keys *keys, const char *key, const char *value, const char *said)
{
    enum { BYTES = LS_CONFIG_VALUE_BYTES };
    char assignment[256], theirs[BYTES], given[BYTES];
    struct ls_error why = {0};
    bool whole = strchr(key, '.');
    snprintf(assignment, sizeof assignment, "%s%s", whole ? "" : "model.", key);
    const struct ls_config_key *entry = ls_config_key_of(assignment);
    struct ls_config_origin *origin = &keys->config->origin[entry - ls_config_keys(NULL)];
    snprintf(assignment, sizeof assignment, "%s=%s", entry->name, value);
    if (ls_config_set(keys->scratch, assignment, &why))
        return ls_error_set(keys->error, LS_ECONFIG, "%.300s: %s = %.60s: %.300s", keys->name, said,
                            value, why.text);
    value_of(keys->scratch, entry, theirs, sizeof theirs);
    value_of(keys->config, entry, given, sizeof given);
    /* 0 of these is a value, not what is filled in. */
    bool value_0 = entry->type == LS_CONFIG_REAL || !strcmp(entry->name, "model.window");
    bool automatic = !strcmp(given, entry->initial) && !value_0 &&
                     (!strcmp(given, "0") || !strcmp(given, "auto"));
    if (origin->line != 0 && origin->line != LS_CONFIG_FROM_MODEL && !automatic &&
        strcmp(theirs, given))
        return ls_config_reject(keys->config, LS_ECONFIG, entry->name, keys->error,
                                "%.300s says %.60s (%s): remove the key, or use another %s",
                                keys->name, theirs, said, whole ? "lora.from" : "model.from");
    int status = ls_config_set(keys->config, assignment, keys->error);
    *origin = (struct ls_config_origin){LS_CONFIG_FROM_MODEL, 0};
    return status;
}

/* ---- lists for all blocks -------------------------------------------------------------------- */

static bool is_list(const struct ls_hf_key *row)
{
    return row->words && strchr(row->words, '|');
}

/* What stands there for a block that is among those of the row's key, and for one that is not. */
static json_t *list_word(const struct ls_hf_key *row, bool among)
{
    const char *other = strchr(row->words, '|');
    json_t *word = among ? json_loadb(row->words, (size_t)(other - row->words), JSON_DECODE_ANY, 0)
                         : json_loads(other + 1, JSON_DECODE_ANY, NULL);
    LS_ASSERT(word);
    return word;
}

/* model.window_layers or model.rope_layers, whichever the key is. */
static enum ls_layers layers_named(const char *key, enum ls_layers window, enum ls_layers rope)
{
    return !strcmp(key, "window_layers") ? window : rope;
}

static json_t *list_of(const struct ls_hf_key *row, enum ls_layers among, int64_t layers)
{
    json_t *list = json_array();
    for (int64_t block = 0; block < layers; block++)
        json_array_append_new(list, list_word(row, ls_layer_among(among, block)));
    return list;
}

bool interop_layers_agree(const struct ls_model_config *model, enum ls_layers one,
                          enum ls_layers other)
{
    int64_t block = 0;
    while (block < model->layers && ls_layer_among(one, block) == ls_layer_among(other, block))
        block++;
    return block == model->layers;
}

static bool list_is(const json_t *value, const struct ls_hf_key *row, enum ls_layers among,
                    int64_t layers)
{
    bool same = json_is_array(value) && (int64_t)json_array_size(value) >= layers;
    json_t *list = list_of(row, among, same ? layers : 0);
    for (size_t block = 0; block < json_array_size(list) && same; block++)
        same = json_equal(json_array_get(list, block), json_array_get(value, block));
    json_decref(list);
    return same;
}

/* The word for the blocks whose list that is: the family's own before others. NULL: there is none.
 */
static const char *list_layers(const struct interop_keys *keys, const struct ls_hf_key *row,
                               const json_t *value)
{
    const struct ls_family *family = ls_family_of(keys->arch);
    int usual = (int)layers_named(row->key, family->window_layers, family->rope_layers);
    int64_t layers = json_integer_value(json_object_get(keys->description, "num_hidden_layers"));
    const char *found = NULL;
    for (const struct ls_word *word = ls_config_key_of("model.window_layers")->words; word->word;
         word++)
        if (word->value != LS_CONFIG_AUTO && (!found || word->value == usual) &&
            list_is(value, row, (enum ls_layers)word->value, layers))
            found = word->word;
    return found;
}

/* ---- one key --------------------------------------------------------------------------------- */

static int key_refuse(const struct interop_keys *keys, const char *name, const json_t *value,
                      const char *expected)
{
    return ls_error_set(keys->error, LS_ECONFIG,
                        "%.300s: %s = %s: a model of the family %s here has %s", keys->name, name,
                        interop_json_text(value).text, ls_arch_name(keys->arch), expected);
}

/* A number in quotes is none, nor 2.0 where layers are counted: transformers reads neither. */
static const char *kind_expected(const char *key, const json_t *value)
{
    char name[64];
    snprintf(name, sizeof name, "model.%s", key);
    enum ls_config_type type = ls_config_key_of(name)->type;
    if (type == LS_CONFIG_INT && !json_is_integer(value))
        return "a whole number there";
    if (type == LS_CONFIG_REAL && !json_is_number(value))
        return "a number there";
    return type == LS_CONFIG_WORD && !json_is_boolean(value) ? "true or false there" : NULL;
}

static int mapped_import(struct interop_keys *keys, const struct ls_hf_key *row,
                         const json_t *value)
{
    char text[128], list[256];
    if (is_list(row)) {
        const char *among = list_layers(keys, row, value);
        snprintf(list, sizeof list, "one of the values of model.%s", row->key);
        return among ? interop_key_set(keys, row->key, among, row->name)
                     : key_refuse(keys, row->name, value, list);
    }
    if (!value_text(value, text, sizeof text))
        return key_refuse(keys, row->name, value, "one value there");
    if (row->words && word_find(row->words, text, true, text, sizeof text))
        return interop_key_set(keys, row->key, text, row->name);
    if (row->words && !words_end_open(row->words)) {
        words_list(row->words, list, sizeof list);
        return key_refuse(keys, row->name, value, list);
    }
    const char *expected = kind_expected(row->key, value);
    return expected ? key_refuse(keys, row->name, value, expected)
                    : interop_key_set(keys, row->key, text, row->name);
}

static bool values_equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* Of a list, the one for all blocks. */
static bool value_is(const json_t *value, const json_t *wanted)
{
    if (!json_is_array(wanted) || !json_is_array(value))
        return values_equal(value, wanted);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!values_equal(json_array_get(value, i), json_array_get(wanted, 0)))
            return false;
    return true;
}

static int row_import(struct interop_keys *keys, const struct ls_hf_key *row)
{
    const json_t *value = *row->name ? json_object_get(keys->description, row->name) : NULL;
    char word[64];
    bool null = json_is_null(value) &&
                !(row->words && word_find(row->words, "null", true, word, sizeof word));
    bool given = value && !null, any = row->absent && !*row->absent;
    if (row->key && !given && !row->absent)
        return ls_error_set(keys->error, LS_ECONFIG, "%.300s: %s is missing", keys->name,
                            row->name);
    if (any ? !(row->key && given) : !row->key && !given)
        return LS_OK;
    json_t *wanted = any || !row->absent ? NULL : json_loads(row->absent, JSON_DECODE_ANY, NULL);
    int status = LS_OK;
    if (row->key)
        status = mapped_import(keys, row, given ? value : wanted);
    else if (!value_is(value, wanted))
        status = key_refuse(keys, row->name, value, row->absent);
    json_decref(wanted);
    return status;
}

int interop_keys_import(struct interop_keys *keys)
{
    struct key_rows rows = {0};
    const struct ls_hf_key *row;
    int status = architecture_check(keys);
    if (!status)
        status = interop_key_set(keys, "arch", ls_arch_name(keys->arch), "model_type");
    while (!status && (row = rows_next(&rows, keys->arch)))
        status = row_import(keys, row);
    if (!status && ls_family_reads(keys->arch, "rope_theta"))
        status = interop_rope_import(keys);
    return status;
}

static bool is_known(enum ls_arch arch, const char *name)
{
    struct key_rows rows = {0};
    const struct ls_hf_key *row;
    while ((row = rows_next(&rows, arch)))
        if (ls_word_among(row->name, name))
            return true;
    return !strncmp(name, "rope_", strlen("rope_")) &&
           ls_family_reads(arch, "rope_theta"); /* each is read or refused */
}

/* Whether versions of transformers differ in that value: like = what it is here. */
static bool is_doubtful(enum ls_arch arch, const char *name, const char *value, char like[64])
{
    struct key_rows rows = {0};
    const struct ls_hf_key *row;
    char pair[128], ours[64];
    while ((row = rows_next(&rows, arch)) && strcmp(row->name, name))
        ;
    if (!row || !value || !row->words || !word_find(row->words, value, true, ours, sizeof ours))
        return false;
    snprintf(pair, sizeof pair, "%.60s=%s?", value, ours);
    return strstr(row->words, pair) && word_find(row->words, ours, false, like, 64);
}

void interop_keys_unknown(const json_t *description, enum ls_arch arch, const char *name,
                          const struct ls_log *log)
{
    const char *key;
    const json_t *value;
    char like[64];
    json_object_foreach((json_t *)description, key, value)
    {
        if (!json_is_null(value) && !is_known(arch, key))
            ls_log(log, LS_LOG_WARNING, "%s: %.60s = %s is not known here and was not read", name,
                   key, interop_json_text(value).text);
        if (is_doubtful(arch, key, json_string_value(value), like))
            ls_log(
                log, LS_LOG_WARNING,
                "%s: %.60s = %s: versions of transformers differ in what that is; here it is %s: "
                "expected that word, with which all have one model",
                name, key, interop_json_text(value).text, like);
    }
}

/* ---- out ------------------------------------------------------------------------------------- */

/* Real numbers here that transformers takes as whole ones alone. */
static bool is_whole(const struct ls_hf_key *row)
{
    return !strcmp(row->name, "query_pre_attn_scalar");
}

/* A file without the key, or with null there, has this value. */
static bool has_default(const struct ls_hf_key *row)
{
    return row->absent && *row->absent && strcmp(row->absent, "null") != 0;
}

/* The value of our key as JSON; NULL if there is none. A family that must have a window has one
 * over the whole context. */
static json_t *mapped_value(const struct ls_config *config, const struct ls_hf_key *row)
{
    char name[64], text[LS_CONFIG_VALUE_BYTES], word[64];
    snprintf(name, sizeof name, "model.%s", row->key);
    const struct ls_config_key *key = ls_config_key_of(name);
    if (is_list(row))
        return list_of(
            row, layers_named(row->key, config->model.window_layers, config->model.rope_layers),
            config->model.layers);
    value_of(config, key, text, sizeof text);
    bool found = row->words && word_find(row->words, text, false, word, sizeof word);
    if (found) {
        json_t *value = json_loads(word, JSON_DECODE_ANY, NULL); /* null, or a number */
        return value ? value : json_string(word);
    }
    if (row->words && !words_end_open(row->words))
        return NULL;
    if (!strcmp(text, "true") || !strcmp(text, "false"))
        return json_boolean(text[0] == 't');
    if (!strcmp(text, "0") && !strcmp(row->key, "window") && has_default(row))
        return json_integer(config->model.context);
    if (!strcmp(text, "0")) /* none */
        return json_null();
    if (key->type == LS_CONFIG_INT)
        return json_integer(strtoll(text, NULL, 10));
    double real = strtod(text, NULL);
    if (is_whole(row))
        return real == floor(real) ? json_integer((json_int_t)real) : NULL;
    return key->type == LS_CONFIG_REAL ? json_real(real) : json_string(text);
}

/* Whether a key of all families says something that transformers cannot know without it. */
static bool is_written(const struct ls_hf_key *row, bool own)
{
    return *row->name && (row->key || (own && has_default(row)));
}

/* Whether the key names blocks, and the same ones, if in other words. */
static bool layers_agree(const struct ls_model_config *one, const struct ls_model_config *other,
                         const char *name)
{
    const char *key = name + strlen("model.");
    return ls_word_among("window_layers|rope_layers", key) &&
           interop_layers_agree(one, layers_named(key, one->window_layers, one->rope_layers),
                                layers_named(key, other->window_layers, other->rope_layers));
}

/* Whether the key is the window, and neither hides anything of the context. */
static bool windows_agree(const struct ls_model_config *one, const struct ls_model_config *other,
                          const char *name)
{
    return !strcmp(name, "model.window") && (!one->window || one->window >= one->context) &&
           (!other->window || other->window >= other->context);
}

/* What was written says the same model when it is read. */
static int export_check(const struct ls_config *config, const json_t *description,
                        struct ls_error *error)
{
    static const char free_keys[] = "model.preset|model.from|model.vocab_multiple|model.dropout|"
                                    "model.seed|model.init_std";
    enum { BYTES = LS_CONFIG_VALUE_BYTES };
    char ours[BYTES], theirs[BYTES];
    size_t count;
    const struct ls_config_key *all = ls_config_keys(&count);
    struct ls_config again, scratch;
    ls_config_defaults(&again);
    ls_config_defaults(&scratch);
    struct interop_keys keys = {.name = "config.json",
                                .description = description,
                                .arch = config->model.arch,
                                .config = &again,
                                .scratch = &scratch,
                                .error = error};
    int status = interop_keys_import(&keys);
    if (!status)
        status = ls_config_resolve(&again, 0, error);
    for (size_t i = 0; i < count && !status; i++) {
        if (ls_word_among(free_keys, all[i].name) || strncmp(all[i].name, "model.", 6) ||
            layers_agree(&config->model, &again.model, all[i].name) ||
            windows_agree(&config->model, &again.model, all[i].name))
            continue;
        if (strcmp(value_of(config, &all[i], ours, sizeof ours),
                   value_of(&again, &all[i], theirs, sizeof theirs)))
            status =
                ls_config_reject(config, LS_ECONFIG, all[i].name, error,
                                 "Hugging Face's %s cannot represent that: a model there has %.60s",
                                 ls_family_of(config->model.arch)->hf.model_type, theirs);
    }
    return status;
}

int interop_keys_export(const struct ls_config *config, json_t *description, struct ls_error *error)
{
    enum ls_arch arch = config->model.arch;
    const struct ls_family_hf *hf = &ls_family_of(arch)->hf;
    struct key_rows rows = {0};
    const struct ls_hf_key *row;
    if (!hf->model_type)
        return ls_error_set(error, LS_ECONFIG, "model.arch = %s: Hugging Face has no such family",
                            ls_arch_name(arch));
    json_object_set_new(description, "model_type", json_string(hf->model_type));
    json_object_set_new(description, "architectures", json_pack("[s]", hf->architecture));
    while ((row = rows_next(&rows, arch))) {
        if (!is_written(row, !rows.all))
            continue;
        json_t *value =
            row->key ? mapped_value(config, row) : json_loads(row->absent, JSON_DECODE_ANY, NULL);
        char name[64];
        snprintf(name, sizeof name, "model.%s", row->key ? row->key : "arch");
        if (!value)
            return ls_config_reject(config, LS_ECONFIG, name, error,
                                    "Hugging Face's %s has no such value of %s", hf->model_type,
                                    row->name);
        json_object_set_new(description, row->name, value);
    }
    if (hf->unscaled && config->model.rope_scaling.factor > 1)
        return ls_config_reject(config, LS_ECONFIG, "model.rope_factor", error,
                                "Hugging Face's %s has no such scaling of positions",
                                hf->model_type);
    interop_rope_export(config, description);
    return export_check(config, description, error);
}
