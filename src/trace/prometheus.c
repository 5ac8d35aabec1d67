/* Prometheus' exposition format 0.0.4 and OpenMetrics 1.0, in one text. */
#include <lockstep/trace.h>

#include "trace/text.h"

#include <lockstep/base/json.h>

#include <ctype.h>
#include <math.h>
#include <string.h>

/* [a-zA-Z_][a-zA-Z0-9_]*, and colons in the names of metrics. */
static bool is_name(const char *name, bool colon_allowed)
{
    if (!name || !name[0] || isdigit((unsigned char)name[0]))
        return false;
    for (const char *c = name; *c; c++)
        if (!isascii(*c) ||
            !(isalnum((unsigned char)*c) || *c == '_' || (colon_allowed && *c == ':')))
            return false;
    return true;
}

/* Whether name ends with _<suffix>. */
static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), tail = strlen(suffix);
    return length > tail + 1 && name[length - tail - 1] == '_' &&
           strcmp(name + length - tail, suffix) == 0;
}

/* Bytes that are no UTF-8 would make a parser refuse the whole file. */
static void put_escaped(FILE *out, const char *string, bool quotes)
{
    const char *c;
    while (*string) {
        size_t length = trace_character(&string, &c);
        if (*c == '\n')
            fputs("\\n", out);
        else if (*c == '\\' || (*c == '"' && quotes))
            fprintf(out, "\\%c", *c);
        else
            fwrite(c, 1, length, out);
    }
}

static void put_value(FILE *out, double value)
{
    fputc(' ', out);
    if (isfinite(value))
        ls_json_number(out, value, 17);
    else
        fputs(isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf", out);
    fputc('\n', out);
}

static int check_labels(const struct ls_metric *metric, struct ls_error *error)
{
    for (int i = 0; i < LS_METRIC_LABELS_MAX && metric->labels[i].name; i++) {
        const struct ls_metric_label *label = &metric->labels[i];
        if (!is_name(label->name, false) || !label->value)
            return ls_error_set(error, LS_EINVAL,
                                "metric %s: the label is \"%s\", expected [a-zA-Z_][a-zA-Z0-9_]* "
                                "with a value",
                                metric->name, label->name);
        for (int j = 0; j < i; j++)
            if (!strcmp(metric->labels[j].name, label->name))
                return ls_error_set(error, LS_EINVAL, "metric %s: the label %s comes twice",
                                    metric->name, label->name);
    }
    return LS_OK;
}

static int check_metric(const struct ls_metric *metrics, size_t i, struct ls_error *error)
{
    const struct ls_metric *metric = &metrics[i];
    bool counter = metric->type == LS_METRIC_COUNTER;
    if (!is_name(metric->name, true))
        return ls_error_set(error, LS_EINVAL,
                            "metric %zu: the name is \"%s\", expected [a-zA-Z_:][a-zA-Z0-9_:]*", i,
                            metric->name ? metric->name : "");
    if (ends_with(metric->name, "total"))
        return ls_error_set(error, LS_EINVAL,
                            "metric %s: leave _total out; it is a counter's suffix, and written "
                            "there",
                            metric->name);
    if (metric->unit && !ends_with(metric->name, metric->unit))
        return ls_error_set(error, LS_EINVAL, "metric %s: its name does not end with its unit, _%s",
                            metric->name, metric->unit);
    if (counter && !(isfinite(metric->value) && metric->value >= 0))
        return ls_error_set(error, LS_EINVAL,
                            "metric %s: a counter is %g, expected a finite number from 0",
                            metric->name, metric->value);
    for (size_t j = 0; j + 1 < i; j++)
        if (!strcmp(metrics[j].name, metric->name) && strcmp(metrics[i - 1].name, metric->name))
            return ls_error_set(error, LS_EINVAL,
                                "metric %s comes twice with others between; keep one name together",
                                metric->name);
    return check_labels(metric, error);
}

static void put_metric(FILE *out, const struct ls_metric *metric, bool first)
{
    bool counter = metric->type == LS_METRIC_COUNTER;
    if (first) {
        fprintf(out, "# TYPE %s %s\n", metric->name, counter ? "counter" : "gauge");
        if (metric->unit)
            fprintf(out, "# UNIT %s %s\n", metric->name, metric->unit);
        fprintf(out, "# HELP %s ", metric->name);
        put_escaped(out, metric->help, false);
        fputc('\n', out);
    }
    fprintf(out, "%s%s", metric->name, counter ? "_total" : "");
    for (int i = 0; i < LS_METRIC_LABELS_MAX && metric->labels[i].name; i++) {
        fprintf(out, "%c%s=\"", i ? ',' : '{', metric->labels[i].name);
        put_escaped(out, metric->labels[i].value, true);
        fputc('"', out);
    }
    if (metric->labels[0].name)
        fputc('}', out);
    put_value(out, metric->value);
}

int ls_prometheus_write(FILE *out, const struct ls_metric *metrics, size_t count,
                        struct ls_error *error)
{
    for (size_t i = 0; i < count; i++) {
        int status = check_metric(metrics, i, error);
        if (status)
            return status;
    }
    for (size_t i = 0; i < count; i++)
        put_metric(out, &metrics[i], i == 0 || strcmp(metrics[i].name, metrics[i - 1].name) != 0);
    fputs("# EOF\n", out);
    return ferror(out) ? ls_error_set(error, LS_EIO, "cannot write the metrics") : LS_OK;
}
