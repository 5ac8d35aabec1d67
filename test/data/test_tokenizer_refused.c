/* tokenizer.json, tokenizer_config.json and rank files that are not supported or wrong: the error
 * names what and where. And what the configuration changes. */
#include "support.h"

#include "data/tokenizer_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAMILIES "test/data/golden/families/"

/* A family's file with the first `from` replaced by `to`; to be freed. */
static char *edited(const char *family, const char *from, const char *to)
{
    char path[256];
    snprintf(path, sizeof path, FAMILIES "%s.json", family);
    struct ls_text file = support_read(path);
    char *at = strstr(file.bytes, from);
    if (!at)
        fail_msg("%s has no %s", path, from);
    char *text = malloc(file.count + strlen(to) + 1);
    sprintf(text, "%.*s%s%s", (int)(at - file.bytes), file.bytes, to, at + strlen(from));
    ls_text_release(&file);
    return text;
}

/* A tokenizer of FOLDER/tokenizer.json with that text, and of a configuration where there is one.
 */
static int make(const char *text, const char *config, struct ls_tokenizer **tokenizer,
                struct ls_error *error)
{
    scratch_write(support_path("tokenizer.json"), text, strlen(text));
    if (config)
        scratch_write(support_path("tokenizer_config.json"), config, strlen(config));
    else
        remove(support_path("tokenizer_config.json"));
    return ls_tokenizer_new(support_folder, tokenizer, error);
}

/* Of added_tokens_decoder; the last one of a token lacks its brace. */
#define DECODER(members) "{\"added_tokens_decoder\":{" members "}}"
#define TOKEN(id, text)  "\"" id "\":{\"content\":\"" text "\""

CASE(test_what_is_refused)
{
    static const struct {
        const char *family, *from, *to, *says;
    } cases[] = {
        {"llama3", "\"type\":\"BPE\"", "\"type\":\"Unigram\"", "model.type: \"Unigram\""},
        {"llama3", "\"type\":\"BPE\"", "\"type\":\"WordPiece\"", "model.type: \"WordPiece\""},
        {"llama3", "\"dropout\":null", "\"dropout\":0.1", "model: a \"dropout\" above 0"},
        {"llama3", "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"",
         "model: \"end_of_word_suffix\""},
        {"llama3", "\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"",
         "model: \"continuing_subword_prefix\""},
        {"llama3", "\"dropout\":null", "\"drop\":null", "model: \"drop\""},
        {"llama3", "\"version\"", "\"revision\"", "the file: \"revision\""},
        {"llama3", "\"byte_fallback\":false", "\"byte_fallback\":true", "\"byte_fallback\" with"},
        {"llama3", "\"normalizer\":null", "\"normalizer\":{\"type\":\"Nmt\"}",
         "normalizer: type \"Nmt\""},
        {"llama2", "\"type\":\"Prepend\"", "\"type\":\"Precompiled\"",
         "normalizer.normalizers[0]: type \"Precompiled\""},
        {"llama3", "\"type\":\"Split\"", "\"type\":\"CharDelimiterSplit\"",
         "pre_tokenizer.pretokenizers[0]: type \"CharDelimiterSplit\""},
        {"words", "\"type\":\"WhitespaceSplit\"", "\"type\":\"Whitespace\",\"lines\":1",
         "pre_tokenizer.pretokenizers[0]: \"lines\""},
        {"words", "\"type\":\"WhitespaceSplit\"",
         "\"type\":\"Metaspace\",\"replacement\":\"▁\"},{\"type\":\"Metaspace\","
         "\"replacement\":\"▁\"",
         "pre_tokenizer.pretokenizers[1]: a second Metaspace"},
        {"words", "\"behavior\":\"Contiguous\"", "\"behavior\":\"Merged\"", "behavior \"Merged\""},
        {"llama3", "\"behavior\":\"Isolated\"", "\"behavior\":\"Merged\"", "behavior \"Merged\""},
        {"llama3", "(?i:'s", "\\\\b(?i:'s", "this escape (at character 3)"},
        {"gpt2", "\"pre_tokenizer\":{", "\"pre_tokenizer\":{\"more\":1,",
         "pre_tokenizer: \"more\""},
        {"llama3", "\"type\":\"TemplateProcessing\"", "\"type\":\"RobertaProcessing\"",
         "post_processor.processors[1]: type \"RobertaProcessing\""},
        {"gpt2", "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"WordPiece\"",
         "decoder: type \"WordPiece\""},
        {"phrases", "\"decoder\":{", "\"decoder\":null,\"truncation\":{", "duplicate object key"},
        {"llama2", "\"stop\":0", "\"stop\":1", "decoder.decoders[3]: a Strip other than"},
        {"mistral", "\"replacement\":\"▁\"", "\"replacement\":\"_\"", "the replacement \"_\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer = NULL;
        char *text = edited(cases[i].family, cases[i].from, cases[i].to);
        int status = make(text, NULL, &tokenizer, &error);
        if (status != LS_ENOTSUP && status != LS_EDATA)
            fail_msg("case %zu (%s): %s", i, cases[i].says, ls_status_name(status));
        assert_text_contains(error.text, cases[i].says);
        assert_text_contains(error.text, "tokenizer.json");
        free(text);
    }
}

CASE(test_what_is_wrong)
{
    static const struct {
        const char *family, *from, *to, *says;
    } cases[] = {
        {"llama3", "\"!\":0,", "\"!\":1,", "model.vocab: id 1 belongs to"},
        {"llama3", "\"!\":0,", "\"!\":-1,", "token \"!\": its id"},
        {"llama3", "\"!\":0,", "\"!\":99999999,", "token \"!\": its id"},
        {"llama3", "\"!\":0,", "\"!\":\"0\",", "token \"!\": its id"},
        {"llama3", "\"!\":0,", "\"\":0,", "token \"\": expected 1 to"},
        {"llama3", "\"!\":0,", "\"a b\":0,", "represents no byte"},
        {"llama3", "\"merges\":[", "\"merges\":[\"a\",",
         "model.merges[0]: expected \"LEFT RIGHT\""},
        {"llama3", "\"merges\":[", "\"merges\":[\"a b c\",", "model.merges[0]"},
        {"llama3", "\"merges\":[", "\"merges\":[[\"a\"],", "model.merges[0]"},
        {"llama3", "\"merges\":[", "\"merges\":[\"zqz a\",",
         "token \"zqz\" is not in the vocabulary"},
        {"llama3", "\"merges\":[", "\"merges\":[[\"q\",\"q\"],",
         "the merged token \"qq\" is not in the vocabulary"},
        {"llama3", "\"content\":\"<|eot_id|>\"", "\"content\":\"\"", "expected 1 to 4096"},
        {"llama3", "\"content\":\"<|eot_id|>\"", "\"content\":\"<|end_of_text|>\"",
         "ids and texts are unique"},
        {"llama3", "\"id\":563", "\"id\":600",
         "\"<|eot_id|>\" has id 600, but tokenizers gives it 563"},
        {"llama3", "\"special\":true", "\"special\":1", "\"special\": expected true or false"},
        {"gemma", "\"<0x41>\":", "\"<0x4>\":", "byte 65 has no token \"<0x41>\""},
        {"always", "\"unk_token\":\"<unk>\"", "\"unk_token\":\"<none>\"",
         "model.unk_token: \"<none>\" is not in model.vocab"},
        {"llama2", "\"unk_token\":\"<unk>\"", "\"unk_token\":3", "model.unk_token: \"\" is not"},
        {"llama2", "\"ids\":[1]", "\"ids\":[100000]", "expected ids of the vocabulary"},
        {"llama2", "\"prepend\":\"▁\"", "\"prepend\":1", "\"prepend\": expected a string"},
        {"llama2", "{\"String\":\" \"}", "{\"String\":\"\"}", "\"pattern\": expected"},
        {"llama2", "{\"version\"", "[{\"version\"", "not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer = NULL;
        char *text = edited(cases[i].family, cases[i].from, cases[i].to);
        int status = make(text, NULL, &tokenizer, &error);
        if (status != LS_EDATA)
            fail_msg("case %zu (%s): %s: %s", i, cases[i].says, ls_status_name(status), error.text);
        assert_text_contains(error.text, cases[i].says);
        free(text);
    }
}

/* Brackets without end, and nests of sequences. */
/* Settings name tokens of a vocabulary that is not there. */
CASE(test_a_model_without_a_vocabulary)
{
    static const char *const files[][2] = {
        {"{\"model\": true}", "model: expected an object"},
        {"{\"model\": {\"type\": \"BPE\", \"merges\": []}}", "model.vocab: expected an object"},
        {"{\"model\": {\"type\": \"Unigram\"}}", "model.type: \"Unigram\""},
        {"{\"pre_tokenizer\": null}", "model: expected an object"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer = NULL;
        assert_int_not_equal(make(files[i][0], "{\"eos_token\": \"</s>\"}", &tokenizer, &error),
                             LS_OK);
        assert_text_contains(error.text, files[i][1]);
    }
}

CASE(test_hostile_nests)
{
    enum { DEPTH = 1 << 20, STEPS = 1000 };
    struct ls_error error = {0};
    struct ls_tokenizer *tokenizer = NULL;
    char *text = malloc(DEPTH + 1);
    memset(text, '[', DEPTH);
    text[DEPTH] = '\0';
    assert_int_equal(make(text, NULL, &tokenizer, &error), LS_EDATA);
    assert_text_contains(error.text, "maximum parsing depth");
    char *at = text + sprintf(text, "{\"normalizer\":");
    for (int i = 0; i < STEPS; i++)
        at += sprintf(at, "{\"type\":\"Sequence\",\"normalizers\":[");
    at += sprintf(at, "{\"type\":\"NFC\"}");
    for (int i = 0; i < STEPS; i++)
        at += sprintf(at, "]}");
    sprintf(at, ",");
    char *file = edited("gpt2", "{", text), *old = strstr(file, ",\"normalizer\":null");
    memmove(old, old + 18, strlen(old + 18) + 1);
    assert_int_equal(make(file, NULL, &tokenizer, &error), LS_ENOTSUP);
    assert_text_contains(error.text, "a sequence in so many sequences");
    free(file);
    free(text);
}

/* The unknown token need not be there if no character needs it. */
CASE(test_an_unknown_token_that_nothing_needs)
{
    static const char *const cases[][3] = {
        {"llama3", "\"unk_token\":null", "\"unk_token\":\"<none>\""},
        {"llama2", "\"unk_token\":\"<unk>\"", "\"unk_token\":\"\""},
    };
    for (int i = 0; i < 2; i++) {
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer;
        char *text = edited(cases[i][0], cases[i][1], cases[i][2]);
        assert_ok(make(text, NULL, &tokenizer, &error), error);
        ls_tokenizer_free(tokenizer);
        free(text);
    }
}

/* Added tokens that the model lacks are numbered behind as many as it has, or behind the highest
 * added one: ids as tokenizers 0.23.3 writes them, and transformers 5.24 adds them. */
CASE(test_added_tokens_beside_a_hole)
{
#define ADDED(id, text) "{\"id\":" #id ",\"content\":\"" text "\",\"special\":true}"
#define HOLED(added)                                                                               \
    "{\"added_tokens\":[" added "],\"decoder\":{\"type\":\"Fuse\"},\"model\":{"                    \
    "\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"b\":1,\"</s>\":6}}}"
    static const struct {
        const char *file, *config;
        int32_t x, y;
    } cases[] = {
        {HOLED(ADDED(6, "</s>") "," ADDED(7, "<x>") "," ADDED(8, "<y>")), NULL, 7, 8},
        {HOLED(ADDED(3, "<x>") "," ADDED(6, "</s>") "," ADDED(7, "<y>")), NULL, 3, 7},
        {HOLED(ADDED(3, "<x>") "," ADDED(4, "<y>") "," ADDED(6, "</s>")), NULL, 3, 4},
        {HOLED(ADDED(6, "</s>")), "{\"pad_token\":\"<x>\"}", 7, -1},
        {HOLED(ADDED(6, "</s>")), DECODER(TOKEN("7", "<x>") "}," TOKEN("8", "<y>") "}"), 7, 8},
        {HOLED(""), "{\"bos_token\":\"<x>\",\"eos_token\":\"</s>\",\"pad_token\":\"<y>\"}", 3, 4},
    };
    struct ls_error error = {0};
    struct ls_tokenizer *tokenizer;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(make(cases[i].file, cases[i].config, &tokenizer, &error), error);
        assert_int_equal(ls_tokenizer_id(tokenizer, "</s>"), 6);
        assert_int_equal(ls_tokenizer_id(tokenizer, "<x>"), cases[i].x);
        assert_int_equal(ls_tokenizer_id(tokenizer, "<y>"), cases[i].y);
        ls_tokenizer_free(tokenizer);
    }
    assert_int_equal(make(HOLED(ADDED(6, "</s>") "," ADDED(3, "<x>")), NULL, &tokenizer, &error),
                     LS_EDATA);
    assert_text_contains(error.text, "\"<x>\" has id 3, but tokenizers gives it 7");
}

/* Characters without a token are left out before pairs are merged, so the spaces around them come
 * together. */
CASE(test_spaces_around_what_is_left_out)
{
#define STEP                                                                                       \
    "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\","                                         \
    "\"prepend_scheme\":\"never\",\"split\":false}"
#define VOCAB           "\"vocab\":{\"\\u2581\":0,\"\\u2581\\u2581\":1,\"x\":2}"
#define MERGES          "\"merges\":[\"\\u2581 \\u2581\"]"
#define STEPS           "\"pre_tokenizer\":" STEP ",\"decoder\":" STEP
#define SPACES(unknown) "{\"model\":{\"type\":\"BPE\"," unknown VOCAB "," MERGES "}," STEPS "}"
    static const struct {
        const char *file, *text;
        int64_t count;
        int32_t ids[3];
    } cases[] = {
        {SPACES(""), " ? ", 1, {1}},
        {SPACES("\"unk_token\":\"x\","), " ? ", 3, {0, 2, 0}},
        /* What has no token is fused with its like, and not with the token that stands for it. */
        {SPACES("\"unk_token\":\"x\",\"fuse_unk\":true,"), "x??x", 3, {2, 2, 2}}};
    for (int i = 0; i < 3; i++) {
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer;
        struct ls_encoder *encoder;
        struct ls_token_list ids = {0};
        assert_ok(make(cases[i].file, NULL, &tokenizer, &error), error);
        assert_int_equal(tokenizer->may_cut, i > 0);
        assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
        assert_ok(ls_encode(encoder, cases[i].text, strlen(cases[i].text), &ids, &error), error);
        assert_int_equal(ids.count, cases[i].count);
        assert_memory_equal(ids.ids, cases[i].ids, (size_t)ids.count * sizeof *ids.ids);
        ls_token_list_release(&ids);
        ls_encoder_free(encoder);
        ls_tokenizer_free(tokenizer);
    }
}

/* A text is cut only where its parts give the ids of the whole: what a tokenizer puts in front of
 * pieces, and tokens that look at what is before them, leave fewer places. */
CASE(test_where_texts_are_cut)
{
#define FLAGS(single_word, special)                                                                \
    "\"single_word\":" single_word ",\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"      \
    "\"special\":" special
#define BYTE_LEVEL(prefix)                                                                         \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix                                         \
    ",\"trim_offsets\":true,\"use_regex\":true}"
    static const struct {
        const char *family, *from, *to, *text;
        int cuts;
    } cases[] = {
        {"llama2", "\"special\":true", "\"special\":false", "a<unk> b", 0},
        {"llama2", "{", "{", "a<unk> b", 1},
        {"gpt2", "\"pre_tokenizer\":" BYTE_LEVEL("false"),
         "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
         "\"individual_digits\":false}," BYTE_LEVEL("true") "]}",
         "ab 12\nx y\nz", 2},
        {"gpt2", "{", "{", "ab 12\nx y\nz", 4},
        {"gpt2", "\"pre_tokenizer\":" BYTE_LEVEL("false"),
         "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" STEP
         ",{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}",
         "ab ab\nab", 0},
        {"llama3", "\"content\":\"<|begin_of_text|>\"," FLAGS("false", "true"),
         "\"content\":\" b\"," FLAGS("true", "false"), "a b c", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer;
        struct ls_encoder *encoder;
        struct ls_token_list whole = {0}, parts = {0};
        const char *text = cases[i].text;
        char *file = edited(cases[i].family, cases[i].from, cases[i].to);
        size_t bytes = strlen(text), cut = bytes;
        int cuts = 0;
        assert_ok(make(file, NULL, &tokenizer, &error), error);
        assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
        assert_ok(ls_encode(encoder, text, bytes, &whole, &error), error);
        for (; (cut = data_last_cut(tokenizer, (const unsigned char *)text, cut)) > 0; cuts++) {
            const struct ls_encode_options options = {.continued = true};
            parts.count = 0;
            assert_ok(ls_encode(encoder, text, cut, &parts, &error), error);
            assert_ok(ls_encode_with(encoder, text + cut, bytes - cut, &options, &parts, &error),
                      error);
            assert_int_equal(parts.count, whole.count);
            assert_memory_equal(parts.ids, whole.ids, (size_t)whole.count * sizeof *whole.ids);
        }
        assert_int_equal(cuts, cases[i].cuts);
        ls_token_list_release(&whole);
        ls_token_list_release(&parts);
        ls_encoder_free(encoder);
        ls_tokenizer_free(tokenizer);
        free(file);
    }
}

/* A chain of replacements that makes 10^12 bytes of one. */
CASE(test_a_text_grows_within_bounds)
{
    enum { CHAIN = 12 };
    static const char step[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
                               "\"content\":\"aaaaaaaaaa\"}";
    struct ls_error error = {0};
    struct ls_tokenizer *tokenizer;
    struct ls_encoder *encoder;
    struct ls_token_list ids = {0};
    char text[CHAIN * sizeof step + 100];
    char *at = text + sprintf(text, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < CHAIN; i++)
        at += sprintf(at, "%s%s", i ? "," : "", step);
    sprintf(at, "]}");
    char *file = edited("gpt2", "\"normalizer\":null", text);
    assert_ok(make(file, NULL, &tokenizer, &error), error);
    assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
    assert_int_equal(ls_encode(encoder, "hallo", 5, &ids, &error), LS_EDATA);
    assert_text_contains(error.text, "expected at most 1048896, which is 64 times the text");
    assert_ok(ls_encode(encoder, "hello", 5, &ids, &error), error);
    ls_token_list_release(&ids);
    ls_encoder_free(encoder);
    ls_tokenizer_free(tokenizer);
    free(file);
}

/* ---- tokenizer_config.json ------------------------------------------------------------------- */

CASE(test_configuration)
{
    static const struct {
        const char *config;
        int before, after;
        const char *eos;
    } cases[] = {
        {NULL, 1, 0, NULL},
        {"{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"}}", 1, 0, "</s>"},
        {"{\"bos_token\":\"<s>\",\"add_bos_token\":false}", 0, 0, NULL},
        {"{\"bos_token\":\"<s>\",\"add_bos_token\":true}", 1, 0, NULL},
        {"{\"eos_token\":\"</s>\",\"add_eos_token\":true,\"add_bos_token\":null}", 1, 1, "</s>"},
        {"{\"added_tokens_decoder\":{\"1\":{\"content\":\"<s>\"}}}", 1, 0, NULL},
        {"{\"add_eos_token\":true}", 1, 0, NULL}, /* transformers 5 adds none */
        {"{\"add_prefix_space\":true,\"tokenizer_class\":\"LlamaTokenizer\"}", 1, 0, NULL},
        {"{\"tokenizer_class\":\"LlamaTokenizer\"}", 1, 0, NULL},
        /* Only some classes ask for it. */
        {"{\"add_prefix_space\":false,\"tokenizer_class\":\"PreTrainedTokenizerFast\"}", 1, 0,
         NULL},
        {"{\"add_prefix_space\":null,\"tokenizer_class\":\"LlamaTokenizerFast\"}", 1, 0, NULL},
    };
    char *text = edited("llama2", "{", "{");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer;
        assert_ok(make(text, cases[i].config, &tokenizer, &error), error);
        assert_int_equal(tokenizer->before_count, cases[i].before);
        assert_int_equal(tokenizer->after_count, cases[i].after);
        assert_int_equal(ls_tokenizer_eos(tokenizer), cases[i].eos ? 2 : -1);
        assert_int_equal(ls_tokenizer_eod(tokenizer), 2); /* </s> */
        assert_true(ls_tokenizer_is_special(tokenizer, 2));
        assert_int_equal(ls_tokenizer_id(tokenizer, "<s>"), 1);
        assert_int_equal(ls_tokenizer_id(tokenizer, "<none>"), -1);
        int files;
        ls_tokenizer_files(tokenizer, &files);
        assert_int_equal(files, cases[i].config ? 2 : 1);
        ls_tokenizer_free(tokenizer);
    }
    static const struct {
        const char *config, *says;
    } wrong[] = {
        {"[]", "expected an object"},
        {"{\"pad_token\":1}", "pad_token: expected a token's text"},
        {"{\"add_prefix_space\":false,\"tokenizer_class\":\"LlamaTokenizerFast\"}",
         "add_prefix_space: false, but tokenizer.json puts a space in front of a text"},
        {"{\"add_prefix_space\":false,\"tokenizer_class\":\"CodeLlamaTokenizer\"}",
         "add_prefix_space: false, but tokenizer.json puts a space in front of a text"},
        {"{\"split_special_tokens\":1}", "\"split_special_tokens\": expected true or false"},
        {"{\"added_tokens_decoder\":[]}", "added_tokens_decoder: expected an object"},
        {"{\"added_tokens_decoder\":{\"x\":{\"content\":\"<s>\"}}}",
         "added_tokens_decoder: \"x\": expected an id"},
        {"{\"added_tokens_decoder\":{\"7\":{\"content\":\"<new>\"}}}",
         "added_tokens_decoder.7: \"<new>\" has id 819 behind those of tokenizer.json"},
        {"{\"added_tokens_decoder\":{\"7\":{\"content\":\"<s>\"}}}",
         "added_tokens_decoder.7: \"<s>\" has id 1 in tokenizer.json"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer;
        assert_int_equal(make(text, wrong[i].config, &tokenizer, &error), LS_EDATA);
        assert_text_contains(error.text, wrong[i].says);
    }
    free(text);
}

/* Without add_prefix_space the class has a default, as in transformers 5.24. */
CASE(test_a_class_has_a_default_prefix)
{
    static const char prepend[] = "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},";
    static const struct {
        const char *family, *from, *to, *config, *says;
    } cases[] = {
        {"llama2", prepend, "", "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}", NULL},
        {"llama2", prepend, "", "{\"tokenizer_class\":\"LlamaTokenizer\"}",
         "add_prefix_space: absent, which means true, but tokenizer.json puts no space"},
        {"llama2", prepend, "",
         "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_prefix_space\":false}", NULL},
        {"gpt2", "{", "{", "{\"tokenizer_class\":\"GPT2Tokenizer\"}", NULL},
        {"gpt2", "\"add_prefix_space\":false", "\"add_prefix_space\":true",
         "{\"tokenizer_class\":\"GPT2TokenizerFast\",\"add_prefix_space\":null}",
         "add_prefix_space: absent, which means false, but tokenizer.json puts a space"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer;
        char *text = edited(cases[i].family, cases[i].from, cases[i].to);
        int status = make(text, cases[i].config, &tokenizer, &error);
        if (cases[i].says)
            assert_text_contains(error.text, cases[i].says);
        else
            assert_ok(status, error);
        if (!status)
            ls_tokenizer_free(tokenizer);
        free(text);
    }
}

/* Tokens that only the files beside tokenizer.json name: ids as transformers 5.24 gives them, whose
 * PreTrainedTokenizerFast reads the same files. */
static const char *const beside[] = {"tokenizer_config.json", "special_tokens_map.json",
                                     "added_tokens.json"};
#define PAD_ALONE 1, 542, 63, 315, 307, 324, 65, 551
#define NEITHER   PAD_ALONE, 63, 317, 642, 65
#define NEW_ALONE 1, 542, 819, 439, 551
enum { CASE_IDS = 16 };
static const struct beside_case {
    const char *files[3], *text;
    int32_t ids[CASE_IDS], eos, vocabulary;
} beside_cases[] = {
    {{NULL}, "a<new> b<pad>", {NEITHER}, -1, 819},
    {{"{\"pad_token\":\"<pad>\"}"}, "a<new> b<pad>", {PAD_ALONE, 819}, -1, 820},
    {{"{\"pad_token\":\"<pad>\",\"split_special_tokens\":true}"},
     "a<new> b<pad>",
     {NEITHER},
     -1,
     820},
    /* A token that the settings add is special if it has a role, whatever its entry says. */
    {{"{\"eos_token\":\"<new>\",\"split_special_tokens\":true,\"added_tokens_decoder\":{" TOKEN(
         "819", "<new>") ",\"special\":false,\"normalized\":false}}}"},
     "a<new> b<pad>",
     {NEITHER},
     819,
     820},
    {{"{\"extra_special_tokens\":[\"<new>\"],\"split_special_tokens\":true,\"added_tokens_"
      "decoder\":{" TOKEN("819", "<new>") ",\"special\":false,\"normalized\":false}}}"},
     "a<new> b",
     {NEW_ALONE},
     -1,
     820},
    /* Found in normalized text alone, where it begins with a meta space. */
    {{DECODER(TOKEN("819", "<new>") "}")}, "a<new> b<pad>", {NEITHER}, -1, 820},
    {{DECODER(TOKEN("820", "<pad>") ",\"special\":true}," TOKEN("819", "<new>") "}")},
     "a<new> b<pad>",
     {PAD_ALONE, 820},
     -1,
     821},
    {{NULL, NULL, "{\"<pad>\":820,\"<new>\":819}"}, "a<new> b<pad>", {NEITHER}, -1, 821},
    {{NULL, "{\"eos_token\":{\"content\":\"<new>\",\"rstrip\":true},\"pad_token\":\"<pad>\"}"},
     "a<new> b<pad>",
     {1, 542, 819, 551, 820},
     819,
     821},
    /* With a decoder, even an empty one, the other two files do not count. */
    {{"{\"eos_token\":\"</s>\",\"added_tokens_decoder\":{}}", "{\"eos_token\":\"<new>\"}",
      "{\"<pad>\":819}"},
     "a<new> b<pad>",
     {NEITHER},
     2,
     819},
    {{"{\"additional_special_tokens\":[\"<new>\",{\"content\":\"<pad>\"}]}"},
     "a<new> b",
     {NEW_ALONE},
     -1,
     821},
    {{"{\"extra_special_tokens\":{\"boi_token\":\"<new>\"}}"}, "a<new> b", {NEW_ALONE}, -1, 820},
    {{"{\"tool_token\":\"<new>\"}"}, "a<new> b", {NEW_ALONE}, -1, 820},
    /* Other flags of a token that is there, and a token of the model's own. */
    {{DECODER(TOKEN("2", "</s>") ",\"rstrip\":true,\"special\":true}")},
     "a</s> b",
     {1, 542, 2, 551},
     -1,
     819},
    /* White space that takes white space: of two matches the second has nothing left. */
    {{DECODER(TOKEN("819", "\\n\\n") ",\"lstrip\":true,\"rstrip\":true,\"special\":true}")},
     "a\n\n\n\n\n b",
     {1, 542, 819, 551},
     -1,
     820},
    {{DECODER(TOKEN("819", "\\n\\n") ",\"rstrip\":true,\"special\":true}")},
     "a\n\n\n\n\n b",
     {1, 542, 819, 819, 551},
     -1,
     820},
    {{"{\"eos_token\":\"\u2581th\"}"}, "a\u2581th b", {1, 542, 599, 439, 551}, 599, 819},
};

static void beside_check(const struct beside_case *c, char digest[33])
{
    const struct ls_encode_options options = {.special = true, .around = true};
    struct ls_error error = {0};
    struct ls_tokenizer *tokenizer;
    struct ls_encoder *encoder;
    struct ls_token_list ids = {0};
    for (int f = 0; f < 3; f++)
        if (c->files[f])
            scratch_write(support_path(beside[f]), c->files[f], strlen(c->files[f]));
        else
            remove(support_path(beside[f]));
    assert_ok(ls_tokenizer_new(support_folder, &tokenizer, &error), error);
    assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
    assert_ok(ls_encode_with(encoder, c->text, strlen(c->text), &options, &ids, &error), error);
    assert_in_range(ids.count, 1, CASE_IDS - 1);
    assert_memory_equal(ids.ids, c->ids, (size_t)ids.count * sizeof *ids.ids);
    assert_int_equal(c->ids[ids.count], 0);
    assert_int_equal(ls_tokenizer_eos(tokenizer), c->eos);
    assert_int_equal(ls_tokenizer_vocabulary(tokenizer), c->vocabulary);
    assert_int_equal(ls_tokenizer_vocabulary_of(tokenizer, 819), 819);
    assert_int_equal(ls_tokenizer_vocabulary_of(tokenizer, 818), c->vocabulary);
    assert_int_equal(ls_tokenizer_vocabulary_of(tokenizer, 0), c->vocabulary);
    ls_tokenizer_digest(tokenizer, digest);
    ls_token_list_release(&ids);
    ls_encoder_free(encoder);
    ls_tokenizer_free(tokenizer);
}

CASE(test_files_beside)
{
    char *text = edited("llama2", "{", "{"), digests[2][33];
    scratch_write(support_path("tokenizer.json"), text, strlen(text));
    for (size_t i = 0; i < sizeof beside_cases / sizeof *beside_cases; i++) {
        beside_check(&beside_cases[i], digests[i > 0]);
        if (beside_cases[i].vocabulary > beside_cases[0].vocabulary)
            assert_string_not_equal(digests[0], digests[1]);
    }
    for (int f = 0; f < 3; f++)
        remove(support_path(beside[f]));
    free(text);
}

/* ---- rank files ------------------------------------------------------------------------------ */

CASE(test_rank_files_that_are_wrong)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"YWI= 1x\n", "ranks.tiktoken:257: expected a token in base 64"},
        {"YWI=\n", ":257: expected a token in base 64"},
        {"YWI 256\n", ":257: expected a token in base 64"},
        {"YW*= 256\n", ":257: expected a token in base 64"},
        {" 256\n", ":257: expected a token in base 64"},
        {"YWI= -1\n", ":257: expected a token in base 64"},
        {"YWI= 99999999999999\n", ":257: expected a token in base 64"},
        {"YWI= 16000000\n", ":257: rank 16000000 in a file of 258 lines"},
        {"YWI= 255\n", ":257: a second token of rank 255"},
        {"YQ== 256\n", "ranks 97 and 256 have the same token"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char digits[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        char text[8192], *at = text, spec[512];
        for (int byte = 0; byte < 256; byte++)
            at += sprintf(at, "%c%c== %d\n", digits[byte >> 2], digits[(byte & 3) << 4], byte);
        strcpy(at, cases[i].line);
        scratch_write(support_path("ranks.tiktoken"), text, strlen(text));
        snprintf(spec, sizeof spec, "llama3:%s", support_path("ranks.tiktoken"));
        struct ls_error error = {0};
        struct ls_tokenizer *tokenizer;
        assert_int_equal(ls_tokenizer_new(spec, &tokenizer, &error), LS_EDATA);
        assert_text_contains(error.text, cases[i].says);
    }
}

/* Two files are GPT-2's; what is beside them is not passed over. */
CASE(test_pairs_of_other_tokenizers)
{
    static const struct {
        const char *name, *text, *says;
    } cases[] = {
        {"tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656}", NULL},
        {"tokenizer_config.json",
         "{\"tokenizer_class\": \"GPT2Tokenizer\", \"eos_token\": \"<|endoftext|>\"}", NULL},
        {"tokenizer_config.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\"}",
         "tokenizer_config.json: tokenizer_class: vocab.json and merges.txt are read as GPT-2's"},
        {"tokenizer_config.json", "{\"add_prefix_space\": true}", "add_prefix_space: vocab.json"},
        {"tokenizer_config.json",
         "{\"added_tokens_decoder\": {\"9\": {\"content\": \"<|im_end|>\"}}}",
         "added_tokens_decoder.9: vocab.json"},
        {"special_tokens_map.json", "{\"pad_token\": {\"content\": \"[PAD]\"}}",
         "special_tokens_map.json: pad_token: vocab.json"},
        {"tokenizer_config.json", "{\"additional_special_tokens\": [\"<new>\"]}",
         "additional_special_tokens: vocab.json"},
        {"added_tokens.json", "{\"<|im_end|>\": 600}", "added_tokens.json: 600: vocab.json"},
    };
    char command[1400];
    snprintf(command, sizeof command,
             "mkdir -p %s/pair && cp test/data/golden/vocab.json "
             "test/data/golden/merges.txt %s/pair",
             support_folder, support_folder);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_tokenizer *tokenizer;
        struct ls_error error = {0};
        char path[600];
        snprintf(path, sizeof path, "%s/pair/%s", support_folder, cases[i].name);
        scratch_write(path, cases[i].text, strlen(cases[i].text));
        int status = ls_tokenizer_new(support_path("pair"), &tokenizer, &error);
        if (cases[i].says) {
            assert_int_equal(status, LS_ENOTSUP);
            assert_text_contains(error.text, cases[i].says);
        } else {
            assert_ok(status, error);
            ls_tokenizer_free(tokenizer);
        }
        unlink(path);
    }
}

/* The ids of a text in a prompt, with spaces between. */
static void prompt_ids(const struct ls_tokenizer *tokenizer, const char *text, char *shown,
                       size_t size)
{
    struct ls_encoder *encoder;
    struct ls_token_list ids = {0};
    struct ls_error error = {0};
    size_t at = 0;
    assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
    assert_ok(ls_encode_with(encoder, text, strlen(text),
                             &(struct ls_encode_options){.special = true}, &ids, &error),
              error);
    for (int64_t i = 0; i < ids.count; i++)
        at += (size_t)snprintf(shown + at, size - at, "%s%d", i ? " " : "", ids.ids[i]);
    assert_true(at < size);
    ls_token_list_release(&ids);
    ls_encoder_free(encoder);
}

/* What GPT2Tokenizer of transformers 5 gives for the two files: <|endoftext|> is a special token
 * unless bos, eos and unk are others, and so are those that settings name. Settings that say so
 * belong to the tokenizer's files. */
CASE(test_special_tokens_of_pairs)
{
    static const struct {
        const char *settings;
        bool end, th; /* which are found as tokens */
        int files;
    } cases[] = {
        {NULL, true, false, 2},
        {"{\"eos_token\": \"<|endoftext|>\", \"model_max_length\": 9}", true, false, 2},
        {"{\"pad_token\": \"th\"}", true, true, 3},
        {"{\"additional_special_tokens\": [\"th\"]}", true, true, 3},
        {"{\"bos_token\": \"th\", \"eos_token\": {\"content\": \"th\"}}", true, true, 3},
        {"{\"bos_token\": \"th\", \"eos_token\": \"th\", \"unk_token\": \"th\"}", false, true, 3},
        {"{\"bos_token\": null, \"eos_token\": null, \"unk_token\": null}", false, false, 3},
    };
    char command[1400], config[600];
    snprintf(
        command, sizeof command,
        "mkdir -p %s/pair && cp test/data/golden/vocab.json test/data/golden/merges.txt %s/pair",
        support_folder, support_folder);
    assert_int_equal(system(command), 0);
    snprintf(config, sizeof config, "%s/pair/tokenizer_config.json", support_folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_tokenizer *tokenizer;
        struct ls_error error = {0};
        char shown[2][200];
        int count;
        unlink(config);
        if (cases[i].settings)
            scratch_write(config, cases[i].settings, strlen(cases[i].settings));
        assert_ok(ls_tokenizer_new(support_path("pair"), &tokenizer, &error), error);
        int32_t end = ls_tokenizer_eod(tokenizer), th = ls_tokenizer_id(tokenizer, "th");
        prompt_ids(tokenizer, "<|endoftext|>", shown[0], sizeof shown[0]);
        snprintf(shown[1], sizeof shown[1], "%d", end);
        assert_int_equal(!strcmp(shown[0], shown[1]), cases[i].end);
        assert_int_equal(th >= 0 && ls_tokenizer_is_special(tokenizer, th), cases[i].th);
        ls_tokenizer_files(tokenizer, &count);
        assert_int_equal(count, cases[i].files);
        ls_tokenizer_free(tokenizer);
    }
    unlink(config);
}

static void link_to(const char *from, const char *target)
{
    unlink(from);
    assert_int_equal(symlink(target, from), 0);
}

/* A stranger's folder does not lead out of itself; in a cache, files lie in blobs/ beside
 * snapshots/, and what belongs together is still found. */
CASE(test_links_stay_in_the_folder)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "chat_template.jinja"};
    struct ls_tokenizer *tokenizer;
    struct ls_error error = {0};
    char secret[600], path[600], command[2400];
    snprintf(secret, sizeof secret, "%s", support_path("secret"));
    scratch_write(secret, "{}", 2);
    snprintf(command, sizeof command,
             "cd %s && mkdir -p a m/snapshots/1 m/blobs && cp \"$OLDPWD\"/" FAMILIES
             "llama3.json m/blobs/x && ln -s ../../blobs/x m/snapshots/1/tokenizer.json && "
             "echo '{\"bos_token\": \"<|end_of_text|>\"}' > m/snapshots/1/tokenizer_config.json",
             support_folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s", support_path("m/snapshots/1"));
    assert_ok(ls_tokenizer_new(path, &tokenizer, &error), error);
    assert_int_equal(ls_tokenizer_bos(tokenizer), ls_tokenizer_id(tokenizer, "<|end_of_text|>"));
    ls_tokenizer_free(tokenizer);
    snprintf(command, sizeof command, "cp %s/m/blobs/x %s/a/tokenizer.json", support_folder,
             support_folder);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(system(command), 0);
        snprintf(path, sizeof path, "%s/a/%s", support_folder, names[i]);
        link_to(path, secret);
        assert_int_equal(ls_tokenizer_new(support_path("a"), &tokenizer, &error), LS_EIO);
        assert_text_contains(error.text, names[i]);
        assert_text_contains(error.text, "secret, which is not in the folder");
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/a/given.json", support_folder); /* a file that the user names */
    snprintf(secret, sizeof secret, "%s/m/blobs/x", support_folder);
    link_to(path, secret);
    assert_ok(ls_tokenizer_new(path, &tokenizer, &error), error);
    ls_tokenizer_free(tokenizer);
}

SUITE_MAIN(support_setup, support_teardown)
