/* YAML by events: what is the same for every file that is read. */
#include <lockstep/base/yaml.h>

#include <libfyaml.h>
#include <string.h>

int ls_yaml_fail(struct ls_yaml *yaml, struct ls_yaml_place at, const char *what)
{
    ls_error_set(yaml->error, LS_ECONFIG, "%s", what);
    ls_error_at(yaml->error, yaml->name, at.line, at.column);
    return LS_ECONFIG;
}

int ls_yaml_about(struct ls_yaml *yaml, struct ls_yaml_place at, const char *key, const char *what)
{
    ls_error_set(yaml->error, LS_ECONFIG, "%s", what);
    ls_error_about(yaml->error, key, 0);
    ls_error_at(yaml->error, yaml->name, at.line, at.column);
    return LS_ECONFIG;
}

int ls_yaml_refuse(struct ls_yaml *yaml, struct ls_yaml_place at, const char *key,
                   const char *value, const char *why)
{
    ls_error_refuse(yaml->error, LS_ECONFIG, key, value, "expected %s", why);
    ls_error_at(yaml->error, yaml->name, at.line, at.column);
    return LS_ECONFIG;
}

/* YAML may also be UTF-16; here it is UTF-8, so that a value's bytes are what the file holds. And
 * libfyaml may read other bytes for ever. */
static int bytes_check(struct ls_yaml *yaml, const char *text, size_t bytes)
{
    size_t good = ls_utf8_valid(text, bytes);
    const char *zero = memchr(text, '\0', good);
    if (good == bytes && !zero)
        return LS_OK;
    struct ls_yaml_place at = {1, 1};
    for (const char *p = text; p < (zero ? zero : text + good); p++) {
        at.line += *p == '\n';
        at.column = *p == '\n' ? 1 : at.column + 1;
    }
    return ls_yaml_fail(yaml, at, "expected UTF-8 text: re-encode the file");
}

int ls_yaml_open(struct ls_yaml *yaml, const char *name, const char *text, size_t bytes,
                 const char *wanted, struct ls_error *error)
{
    struct fy_diag_cfg diag_config;
    fy_diag_cfg_default(&diag_config);
    diag_config.fp = NULL;
    *yaml = (struct ls_yaml){.name = name, .wanted = wanted, .error = error};
    int status = bytes_check(yaml, text, bytes);
    if (status)
        return status;
    yaml->diag = fy_diag_create(&diag_config);
    if (yaml->diag) {
        const struct fy_parse_cfg parse_config = {
            .flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
            .diag = yaml->diag,
        };
        fy_diag_set_collect_errors(yaml->diag, true);
        yaml->parser = fy_parser_create(&parse_config);
    }
    if (yaml->parser && fy_parser_set_string(yaml->parser, text, bytes) == 0)
        return LS_OK;
    return ls_error_set(error, LS_ENOMEM, "%.200s: no memory for the YAML parser", name);
}

void ls_yaml_close(struct ls_yaml *yaml)
{
    if (yaml->parser) {
        fy_parser_event_free(yaml->parser, yaml->event);
        fy_parser_destroy(yaml->parser);
    }
    if (yaml->diag)
        fy_diag_destroy(yaml->diag);
    *yaml = (struct ls_yaml){0};
}

/* What libfyaml has to say about text that is not YAML. */
static int fail_syntax(struct ls_yaml *yaml)
{
    void *iterator = NULL;
    struct fy_diag_error *first = fy_diag_errors_iterate(yaml->diag, &iterator);
    struct ls_yaml_place at = {1, 1};
    char what[300];
    snprintf(what, sizeof what, "not YAML: %.250s",
             first && first->msg ? first->msg : yaml->wanted);
    if (first && first->line > 0)
        at = (struct ls_yaml_place){first->line, first->column > 0 ? first->column : 1};
    return ls_yaml_fail(yaml, at, what);
}

static int refuse_decoration(struct ls_yaml *yaml)
{
    const struct fy_event *event = yaml->event;
    bool tagged = (event->type == FYET_SCALAR && event->scalar.tag) ||
                  (event->type == FYET_MAPPING_START && event->mapping_start.tag) ||
                  (event->type == FYET_SEQUENCE_START && event->sequence_start.tag);
    if (event->type == FYET_ALIAS)
        return ls_yaml_fail(yaml, ls_yaml_at(yaml), "aliases are not supported: write the value");
    return tagged ? ls_yaml_fail(yaml, ls_yaml_at(yaml), "tags are not supported: remove it")
                  : LS_OK;
}

int ls_yaml_next(struct ls_yaml *yaml)
{
    fy_parser_event_free(yaml->parser, yaml->event);
    yaml->event = fy_parser_parse(yaml->parser);
    return yaml->event ? refuse_decoration(yaml) : fail_syntax(yaml);
}

int ls_yaml_begin(struct ls_yaml *yaml)
{
    int status = ls_yaml_next(yaml);
    if (!status && yaml->event->type == FYET_STREAM_START)
        status = ls_yaml_next(yaml);
    if (!status && yaml->event->type == FYET_DOCUMENT_START)
        status = ls_yaml_next(yaml);
    return status;
}

int ls_yaml_end(struct ls_yaml *yaml)
{
    int status = ls_yaml_next(yaml); /* the document's end */
    if (!status)
        status = ls_yaml_next(yaml);
    if (!status && yaml->event->type != FYET_STREAM_END)
        status = ls_yaml_fail(yaml, ls_yaml_at(yaml), "a second document: expected one");
    return status;
}

struct ls_yaml_place ls_yaml_at(const struct ls_yaml *yaml)
{
    const struct fy_mark *mark = fy_event_start_mark(yaml->event);
    if (!mark)
        return (struct ls_yaml_place){1, 1};
    /* The mark of a scalar in quotes stands behind the opening one. */
    bool quoted = false;
    if (yaml->event->type == FYET_SCALAR && yaml->event->scalar.value) {
        enum fy_scalar_style style = fy_token_scalar_style(yaml->event->scalar.value);
        quoted = style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
    }
    return (struct ls_yaml_place){mark->line + 1, mark->column + 1 - (quoted && mark->column)};
}

bool ls_yaml_text(const struct ls_yaml *yaml, char *text, size_t bytes)
{
    size_t length = 0;
    struct fy_token *token = yaml->event->scalar.value;
    const char *value = token ? fy_token_get_text(token, &length) : "";
    if (!value || length >= bytes || memchr(value, '\0', length))
        return false;
    memcpy(text, value, length);
    text[length] = '\0';
    return true;
}

int ls_yaml_map(struct ls_yaml *yaml, const char *prefix, ls_yaml_value *value, void *user)
{
    int status;
    while ((status = ls_yaml_next(yaml)) == LS_OK && yaml->event->type != FYET_MAPPING_END) {
        struct ls_yaml_place at = ls_yaml_at(yaml);
        char word[LS_YAML_NAME_BYTES / 2], name[LS_YAML_NAME_BYTES];
        if (yaml->event->type != FYET_SCALAR)
            return ls_yaml_fail(yaml, at, "expected a key");
        if (!ls_yaml_text(yaml, word, sizeof word) || strlen(prefix) >= sizeof word)
            return ls_yaml_fail(yaml, at, "unknown key (too long)");
        snprintf(name, sizeof name, "%s%s", prefix, word);
        status = ls_yaml_next(yaml);
        if (!status)
            status = value(user, at, name, name + strlen(prefix));
        if (status)
            return status;
    }
    return status;
}

int ls_yaml_once(struct ls_yaml *yaml, struct ls_yaml_place *seen, struct ls_yaml_place at,
                 const char *name)
{
    char what[LS_YAML_NAME_BYTES + 64];
    if (seen->line) {
        snprintf(what, sizeof what, "%s is given twice (first on line %d): remove one", name,
                 seen->line);
        return ls_yaml_about(yaml, at, name, what);
    }
    *seen = at;
    return LS_OK;
}
