#!/usr/bin/env python3
"""Makes test/chat/golden/ with transformers' Jinja (Python packages transformers and jinja2).

    tools/golden_chat.py

  FAMILY.jinja       templates written for this test, which print a family's marks and use what
                     its own template uses of the language
  rendered.json      conversations, and what each template makes of them; null: it refuses
  expressions.json   small templates, one or more for each thing of the language, and their texts
"""
import json
import pathlib

from transformers.utils import chat_template_utils

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "test" / "chat" / "golden"

CHATML = r"""{% set opening = messages[0] %}
{% if opening.role != 'system' %}
{{ '<|im_start|>system\nAnswer in one sentence.<|im_end|>\n' }}
{% endif %}
{% for turn in messages %}
{{ '<|im_start|>' ~ turn['role'] }}
{{ turn.content + '<|im_end|>' + '\n' -}}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""

LLAMA2 = (
    "{% set rules = '' %}{% set talk = messages %}{% if messages[0].role == 'system' %}"
    r"{% set rules = '<<SYS>>\n' ~ messages[0]['content'] ~ '\n<</SYS>>\n\n' %}"
    "{% set talk = messages[1:] %}{% endif %}{% for turn in talk %}"
    "{% if loop.index0 % 2 == 0 and turn.role == 'user' %}"
    "{{ bos_token ~ '[INST] ' ~ ((rules if loop.first else '') ~ turn.content).strip() ~ ' [/INST]' }}"
    "{% elif loop.index0 % 2 == 1 and turn.role == 'assistant' %}"
    "{{ ' ' ~ turn.content.strip() ~ ' ' ~ eos_token }}{% else %}"
    "{{ raise_exception('a user and an assistant have to take turns') }}{% endif %}{% endfor %}"
)

LLAMA3 = r"""{#- Headers of Llama 3, tools in front of the first question or in the system's turn -#}
{%- set day = date_string if date_string is defined else "1 Feb 2003" %}
{%- set tools = custom_tools if custom_tools is defined else (tools if tools is defined else none) %}
{%- set apart = not tools_in_user_message|default(true) %}
{%- set rules, talk = "", messages %}
{%- if messages[0]['role'] == 'system' %}
    {%- set rules, talk = messages[0]['content']|trim, messages[1:] %}
{%- endif %}
{{- bos_token + "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if builtin_tools is defined %}
    {{- "Built in: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + ".\n" }}
{%- endif %}
{{- "It is " ~ day ~ ".\n" }}
{%- if tools is not none and apart %}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) ~ "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- rules ~ "<|eot_id|>" }}
{%- if tools is not none and not apart %}
    {%- if talk | length == 0 %}
        {{- raise_exception("no question to put the tools in front of") }}
    {%- endif %}
    {{- "<|start_header_id|>user<|end_header_id|>\n\nTools:\n" -}}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) ~ "\n\n" }}
    {%- endfor %}
    {{- talk[0].content | trim ~ "<|eot_id|>" }}
    {%- set talk = talk[1:] %}
{%- endif %}
{%- for turn in talk %}
    {%- if 'tool_calls' in turn and turn.tool_calls | length != 1 %}
        {{- raise_exception("one call at a time") }}
    {%- elif 'tool_calls' in turn %}
        {%- set call = turn.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' ~ call.name }}
        {{- '", "parameters": ' ~ call.arguments | tojson ~ '}<|eot_id|>' }}
    {%- elif turn.role in ['tool', 'ipython'] %}
        {%- set result = turn.content %}
        {%- if result is mapping or result is iterable %}
            {%- set result = result | tojson %}
        {%- endif %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" ~ result ~ "<|eot_id|>" }}
    {%- else %}
        {{- '<|start_header_id|>' + turn['role'] + '<|end_header_id|>\n\n' + turn['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

MISTRAL = r"""{%- set seen = namespace(questions=0, due='user') %}
{%- set talk = messages if messages[0].role != "system" else messages[1:] %}
{%- set asked = talk | selectattr("role", "equalto", "user") | list %}
{%- for turn in talk if turn.role in ("user", "assistant") and not turn.tool_calls is defined %}
    {%- if turn.role != seen.due %}
        {{- raise_exception("expected a turn of the " ~ seen.due) }}
    {%- endif %}
    {%- set seen.due = "assistant" if seen.due == "user" else "user" %}
{%- endfor %}
{{- bos_token }}
{%- for turn in talk %}
    {%- if turn.role == "user" %}
        {%- set seen.questions = seen.questions + 1 %}
        {%- if tools is defined and tools is not none and seen.questions == asked | length %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {{- '{"type": "function", "function": {' }}
                {%- for name, value in tool.function.items() if name != "strict" %}
                    {{- '"' ~ name ~ '": ' }}
                    {%- if value is string %}
                        {{- '"' + value + '"' }}
                    {%- else %}
                        {{- value | tojson }}
                    {%- endif %}
                    {{- "" if loop.last else ", " }}
                {%- endfor %}
                {{- "}}" ~ ("]" if loop.last else ", ") }}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST] " }}
        {%- if loop.last and messages[0].role == "system" %}
            {{- messages[0].content + "\n\n" }}
        {%- endif %}
        {{- turn.content + "[/INST]" }}
    {%- elif turn.tool_calls is defined and turn.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in turn.tool_calls %}
            {%- if call.id is not defined or call.id | length != 9 %}
                {{- raise_exception("a call's id has 9 characters") }}
            {%- endif %}
            {{- (call.function | tojson)[:-1] ~ ', "id": "' ~ call.id ~ '"}' }}
            {{- "]" + eos_token if loop.last else ", " }}
        {%- endfor %}
    {%- elif turn.role == "assistant" %}
        {{- " " + turn.content | trim + eos_token }}
    {%- elif turn.role == "tool" %}
        {%- set result = turn.content.content if turn.content.content is defined else turn.content %}
        {{- '[TOOL_RESULTS] {"content": ' + result | string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("who is " ~ turn.role ~ "?") }}
    {%- endif %}
{%- endfor %}
"""

QWEN25 = r"""{%- set rules = "Be of use." %}
{%- if messages[0]['role'] == 'system' %}
    {%- set rules = messages[0]['content'] %}
{%- endif %}
{{- '<|im_start|>system\n' ~ rules }}
{%- if tools %}
    {{- "\n\n# Tools\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" ~ tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\nA call is {\"name\": <name>, \"arguments\": <arguments>}" }}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- for turn in messages %}
    {%- set before = messages[loop.index0 - 1].role if loop.index0 > 0 else '' %}
    {%- set behind = '' if loop.last else messages[loop.index0 + 1].role %}
    {%- if turn.role == "tool" %}
        {{- '' if before == "tool" else '<|im_start|>user' }}
        {{- '\n<tool_response>\n' ~ turn.content ~ '\n</tool_response>' }}
        {{- '' if behind == "tool" else '<|im_end|>\n' }}
    {%- elif turn.role == "assistant" and turn.tool_calls %}
        {{- '<|im_start|>assistant' ~ ('\n' ~ turn.content if turn.content else '') }}
        {%- for call in turn.tool_calls %}
            {%- if call.function is defined %}
                {%- set call = call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments | tojson ~ '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif not (turn.role == "system" and loop.first) %}
        {{- '<|im_start|>' + turn.role + '\n' + turn.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

QWEN3 = r"""{#- Thoughts are shown behind the last question alone -#}
{%- set last = namespace(question=messages|length - 1, open=true) %}
{%- for turn in messages[::-1] if last.open %}
    {%- set text = turn.content if turn.content is string else '' %}
    {%- set answers_a_call = text.startswith('<tool_response>') and text.endswith('</tool_response>') %}
    {%- if last.open and turn.role == "user" and not answers_a_call %}
        {%- set last.question = messages|length - loop.index %}
        {%- set last.open = false %}
    {%- endif %}
{%- endfor %}
{%- for turn in messages %}
    {%- set text = turn.content if turn.content is string else '' %}
    {%- if turn.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' ~ text ~ '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- elif turn.role == "assistant" %}
        {%- set thought = turn.reasoning_content if turn.reasoning_content is string else '' %}
        {%- if not thought and '</think>' in text %}
            {%- set thought = text.split('</think>')[0].split('<think>')[-1].strip('\n') %}
            {%- set text = text.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' }}
        {%- if loop.index0 > last.question and (loop.last or thought) %}
            {{- '<think>\n' + thought.rstrip('\n') + '\n</think>\n\n' }}
        {%- endif %}
        {{- text }}
        {%- for call in turn.tool_calls or [] %}
            {%- set call = call.function or call %}
            {{- '\n' if text or not loop.first else '' }}
            {{- '<tool_call>\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' ~ turn.role ~ '\n' ~ text ~ '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

GEMMA2 = (
    "{{ bos_token }}{% for turn in messages %}{% set of_user = loop.index0 is even %}"
    "{% if turn.role == 'system' %}{{ raise_exception('this model has no system turn') }}"
    "{% elif of_user != (turn.role == 'user') %}"
    "{{ raise_exception('turns of ' ~ turn.role ~ ' follow each other') }}{% endif %}"
    r"{{ '<start_of_turn>' ~ ('user' if of_user else 'model') }}{{ '\n' ~ turn.content | trim }}"
    r"{{ '<end_of_turn>\n' }}{% endfor %}"
    r"{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)

OLMO2 = (
    r"{{ bos_token }}{% for turn in messages %}{{ '<|' ~ turn.role ~ '|>\n' ~ turn.content }}"
    r"{% if turn.role == 'assistant' %}{{ eos_token }}{% endif %}"
    r"{% if turn.role != 'assistant' or not loop.last %}{{ '\n' }}{% endif %}"
    r"{% if add_generation_prompt and loop.last %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"
)

MACROS = r"""{#- Tools as types, made by macros that call each other and themselves -#}
{%- macro plain(content, gap=' ') -%}
    {%- if content is string -%}
        {{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for piece in content if piece is string or piece.type == 'text' -%}
            {{- piece if piece is string else piece.text }}{{ '' if loop.last else gap }}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- macro type_of(spec, needed=[], level=1) -%}
    {%- set names = {'integer': 'int', 'string': 'str'} %}
    {%- if level > 4 -%}
        {{- '...' }}
    {%- elif spec['items'] is mapping -%}
        {{- 'list of ' ~ type_of(spec['items'], level=level + 1) }}
    {%- elif spec.type is sequence and spec.type is not string -%}
        {{- spec.type | join(' | ') }}
    {%- elif spec.properties -%}
        {{- '{' }}
        {%- for key, inner in spec.properties | items -%}
            {%- set after = ', ' if not loop.last else '' %}
            {{- key ~ ('' if key in needed else '?') ~ ': ' }}
            {{- type_of(inner, inner.required or [], level=level + 1) ~ after }}
        {%- endfor -%}
        {{- '}' }}
    {%- else -%}
        {{- names[spec.type] if names[spec.type] is defined else spec.type | default('any', true) }}
    {%- endif -%}
    {%- if spec.default is defined %} = {{ spec.default | tojson(separators=(',', ':')) }}{% endif %}
{%- endmacro -%}
{%- macro tool_text(tool) %}
{%- set tool = tool.function %}
{{ tool.name }}: {{ type_of(tool.parameters, tool.parameters.required or []) }} # {{ tool.description }}
{%- endmacro -%}
{%- if tools %}{{ '<tools>' }}{% for tool in tools %}{{ tool_text(tool) }}{% endfor %}{{ '</tools>' }}{% endif %}
{% for turn in messages %}
<{{ turn.role }}>{{ plain(turn.content) | trim }}
{% for call in turn.tool_calls or [] %}
{{ call.function.name }}({{ call.function.arguments | tojson(ensure_ascii=true, sort_keys=true) }})
{% endfor %}
{% endfor %}
{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}
"""

MARKED = r"""{% for message in messages %}
{{ '<' ~ message.role ~ '>' }}{% if message.role == 'assistant' %}{% generation %}{{ message.content }}{{ eos_token }}
{% endgeneration %}
{% else %}{{ message.content }}
{% endif %}
{% endfor %}
{% if add_generation_prompt %}<assistant>{% endif %}
"""

TEMPLATES = {
    "chatml": CHATML, "llama2": LLAMA2, "llama3": LLAMA3, "mistral": MISTRAL, "qwen2.5": QWEN25,
    "qwen3": QWEN3, "gemma2": GEMMA2, "olmo2": OLMO2, "marked": MARKED, "macros": MACROS,
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def turns(*texts, system=None):
    """Messages of a user and an assistant in turn."""
    roles = ("user", "assistant")
    head = [{"role": "system", "content": system}] if system is not None else []
    return head + [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather \"now\"; é",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {
        "type": "integer", "default": 3, "scale": 0.5}}, "required": ["city"], "strict": False}}}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function",
        "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "x": [1.5, None]}}}]}
SCHEMAS = {"type": "function", "function": {
    "name": "tag", "description": "d", "parameters": {"type": "object", "properties": {
        "names": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        "kind": {"type": ["string", "null"], "default": None}, "other": {}, "keys": {"type": "array"},
        "deep": {"type": "object", "required": ["x"], "properties": {"x": {"type": "object", "properties": {
            "y": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}}}}}}}}}
CONVERSATIONS = [
    {"messages": turns("Hello")},
    {"messages": turns("Hello", "Hi there!")},
    {"messages": turns("  1+1? \n", " 2\n", "and 2+2?", "4", system="Be  short. ")},
    {"messages": turns("a", "b", "c", "d", "e")},
    {"messages": turns("", "", system="")},
    {"messages": turns("Größe? 👍🏽", "\u00a0日本語\u3000", "{{ x }} {% if %}", "<|im_end|> \"q\" 'p'")},
    {"messages": turns("why?", "<think>\nhm\n\nwell\n</think>\n\nbecause", "so?",
                       "<think>\nagain\n</think>\n\nyes", system="think")},
    {"messages": turns("a", "b") + turns("c", "d", system="late")},
    {"messages": turns("u", "v") + [{"role": "assistant", "content": "w"}]},
    {"messages": turns("weather?"), "tools": [TOOL]},
    {"messages": turns("weather?", system="s") + [CALL, {
        "role": "tool", "name": "weather", "content": "12 degrees"}, {
        "role": "tool", "name": "weather", "content": "13 degrees"}], "tools": [TOOL, TOOL]},
    {"messages": turns("weather?") + [CALL, {"role": "tool", "content": "12"}] + [
        {"role": "assistant", "content": "It is 12."}]},
    {"messages": turns("weather?") + [{"role": "assistant", "content": [
        {"type": "text", "text": "a"}, {"type": "image"}, "b"], "tool_calls": CALL["tool_calls"]}],
     "tools": [TOOL, SCHEMAS]},
    {"messages": turns("x", "y"), "chat_template_kwargs": {
        "enable_thinking": False, "date_string": "1 Jan 2000", "builtin_tools": ["a", "code_interpreter", "b"],
        "tools_in_user_message": False}, "tools": [TOOL]},
]

# Things of the language. v: what the template sees beside the messages.
VARIABLES = {"n": 7, "f": 2.5, "s": " a b\tc ", "u": "äöü日本", "l": [3, 1, 2], "e": [], "t": True,
             "z": None, "m": {"a": 1, "b": [1, {"c": "d"}], "k e": "x"}, "big": 1e300, "tiny": 1e-07,
             "objects": [{"r": "u", "v": 1}, {"r": "a", "v": 2}, {"r": "u"}], "q": "it's \"x\"\n\\"}
EXPRESSIONS = r"""
{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 2 * 'ab' }}|{{ 'ab' * 3 }}
{{ -n|abs }} {{ (-n)|abs }} {{ - n }} {{ +n }} {{ 1 - -1 }} {{ f * 2 }} {{ f + n }} {{ 5.0 // 2 }} {{ -5.5 % 2 }}
{{ 1 ~ 2 ~ 'x' ~ none ~ true }} {{ '1' ~ 2 * 3 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ 'a' == 'a' != 'b' }} {{ none == none }} {{ none == false }}
{{ 1 in l }} {{ 5 in l }} {{ 5 not in l }} {{ 'b' in s }} {{ 'a' in m }} {{ 'z' not in m }} {{ not 1 in l }} {{ '' in '' }}
{{ true and 0 }} {{ 0 or 'x' }} {{ '' or none or 3 }} {{ not '' }} {{ not not 3 }} {{ 1 and 2 or 3 }} {{ false or not false and true }}
{{ 'a' if t else 'b' }} {{ 'a' if e else 'b' }} {{ 'a' if e }}| {{ 1 if 0 else 2 if 0 else 3 }}
{{ l }} {{ e }} {{ m }} {{ (1, 'a') }} {{ (1,) }} {{ () }} {{ [1, [2.0, none], true] }} {{ {'a': 1, 2: 'b'} }} {{ q }} {{ [q] }} {{ ["it's"] }} {{ ['\x07é\t'] }}
{{ f }} {{ big }} {{ tiny }} {{ 0.1 }} {{ 1e16 }} {{ 123456789.125 }} {{ 1.0 }} {{ 1e22 }} {{ 0.00012 }} {{ 1_000 }} {{ 100000000000000000000.0 }}
{{ l[0] }} {{ l[-1] }} {{ l[5] }}| {{ m['a'] }} {{ m.a }} {{ m.b[1].c }} {{ m['k e'] }} {{ m.nope }}| {{ u[1] }} {{ u[-1] }} {{ l.0 }}
{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[-2:] }} {{ l[2:0:-1] }} {{ u[1:3] }} {{ u[::-1] }} {{ u[:-2] }} {{ s[100:] }}| {{ l[-100:100] }} {{ l[::-2] }}
{{ s|trim }}| {{ s.strip() }}| {{ s.lstrip() }}| {{ s.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'abcb'.rstrip('cb') }} {{ ' a'|trim|upper }} {{ '\u00a0\u3000x\u2003'.strip() }}| {{ '--a-'|trim('-') }}
{{ 'a,b,,c'.split(',') }} {{ s.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c'.split(none, 1) }} {{ ''.split(',') }} {{ ''.split() }} {{ 'a--b'.split('--')[-1] }} {{ ' x  y '.split(maxsplit=1) }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith('') }} {{ 'a'.endswith('abc') }} {{ 'abc'.startswith(('x', 'a')) }}
{{ 'abab'.replace('a', 'x') }} {{ 'abab'.replace('a', '', 1) }} {{ 'abab'|replace('b', 'cc') }} {{ 'abc'.find('c') }} {{ 'äbc'.find('c') }} {{ 'abc'.find('x') }} {{ '-'.join(['a', 'b']) }}
{{ 'AbC'|lower }} {{ 'AbC'|upper }} {{ 'AbC'.lower() }} {{ 'hello world'.title() }} {{ 'hello World'|capitalize }} {{ 'x'.upper() }}
{{ l|length }} {{ u|length }} {{ m|count }} {{ ''|length }} {{ nope|length }}
{{ l|join(', ') }} {{ l|join }} {{ ['a', 1, none]|join('-') }} {{ objects|join(',', attribute='r') }} {{ u|join('.') }} {{ e|join(',') }}|
{{ l|first }} {{ l|last }} {{ u|first }} {{ l|list }} {{ 'ab'|list }} {{ m|list }} {{ l|reverse|list }} {{ u|reverse }} {{ e|first }}|
{{ nope|default('d') }} {{ ''|default('d') }}| {{ ''|default('d', true) }} {{ ''|default('d', boolean=true) }} {{ nope|d }}| {{ none|d('x') }} {{ m.nope|default(3) }}
{{ m|tojson }} {{ l|tojson }} {{ q|tojson }} {{ u|tojson }} {{ none|tojson }} {{ f|tojson }} {{ t|tojson }} {{ {'a': '<&>'}|tojson }} {{ 'x\x01\x7f'|tojson }} {{ {1: 2, none: 3, true: 4}|tojson }}
{{ m|tojson(indent=2) }} {{ []|tojson(indent=4) }} {{ {}|tojson(indent=4) }} {{ [[]]|tojson(indent=1) }} {{ [1, {'a': []}]|tojson(indent=0) }}
{{ m|items|list }} {{ m.items()|list }} {{ m.keys()|list }} {{ m.values()|list }} {{ m.get('a') }} {{ m.get('x') }} {{ m.get('x', 9) }}
{{ '12'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ -3.9|int }} {{ ' 4 '|int }} {{ true|int }} {{ 12|string + 'x' }} {{ none|string }}
{{ objects|selectattr('r', 'equalto', 'u')|list|length }} {{ objects|rejectattr('r', 'eq', 'u')|map(attribute='v')|list }} {{ objects|selectattr('v')|list|length }} {{ objects|selectattr('v', 'defined')|map(attribute='v')|join(' ') }}
{{ [1, 0, '', 'a']|select|list }} {{ [1, 2, 3]|select('odd')|list }} {{ [1, 2, 3]|reject('in', [1, 2])|list }} {{ ['a', 'b']|map('upper')|list }} {{ [' a ']|map('trim')|first }}|
{{ 'a\nb\n\nc'|indent }}| {{ 'a\nb'|indent(2, true) }}| {{ 'a\n\nb'|indent(width=1, blank=true) }}| {{ 'x'|safe }} {{ -3|abs }}
{{ nope is defined }} {{ n is defined }} {{ m.x is defined }} {{ nope is undefined }} {{ nope is not defined }} {{ z is none }} {{ n is not none }} {{ not n is none }}
{{ s is string }} {{ n is string }} {{ m is mapping }} {{ l is mapping }} {{ l is iterable }} {{ s is iterable }} {{ n is iterable }} {{ l is sequence }} {{ m is sequence }} {{ z is iterable }}
{{ n is number }} {{ f is number }} {{ t is number }} {{ n is integer }} {{ t is integer }} {{ f is float }} {{ t is boolean }} {{ t is true }} {{ t is false }} {{ 1 is true }}
{{ 3 is odd }} {{ 3 is even }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(4) }} {{ 1 is eq 1 }} {{ 1 is ne(1) }} {{ 1 is in [1] }} {{ 'a' is equalto 'a' }} {{ n is defined and n is odd }}
{% set x = 5 %}{{ x }}{% set x, y = 1, 'two' %}{{ x }}{{ y }}{% set b %}block {{ x }}{% endset %}{{ b }}{{ b|length }}
{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}{% if t %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.nope is defined }}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}
{% for i in l %}{% for j in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %} {% endfor %}
{% for i in l %}{{ loop.previtem is defined }}{{ loop.previtem }}{{ loop.nextitem is defined }}{{ loop.nextitem|default('-') }} {% endfor %}
{% for i in e %}x{% else %}none{% endfor %} {% for i in l if i > 5 %}x{% else %}empty{% endfor %} {% for i in l %}x{% else %}y{% endfor %}
{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}{% for k in m %}{{ k }},{% endfor %}{% for c in u %}{{ c }}.{% endfor %}{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}{% for i in nope %}x{% endfor %}
{% for i in l if i != 1 %}{{ loop.index }}:{{ i }}{{ loop.last }} {% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}{{ range(2)|list }}
{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %} {% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in l %}{% for j in l %}{{ loop.index }}{% if loop.last %}|{% endif %}{% endfor %}{{ loop.index }} {% endfor %}
{% if n == 1 %}a{% elif n == 7 %}b{% else %}c{% endif %}{% if not t %}x{% endif %}{% if nope %}x{% else %}y{% endif %}
{% if n == 7 and (l|length > 2 or nope) %}yes{% endif %}{{ 'a' 'b' "c" }}{{ '\x41\u00e9\n\t\\\'\"\q' }}{{ "a'b" }}
a {#- comment -#} b {# c #} d {%- if t -%} e {%- endif %} f {{- 1 -}} g {%+ if t %} h {%+ endif +%} i
{{ [1, 2] + [3] }} {{ (1, 2) + (3,) }} {{ [1] == [1] }} {{ {'a': 1} == {'a': 1.0} }} {{ (1,) == [1] }} {{ m == m }} {{ dict(a=1, b=2) }}
{{ messages[0]['content'] }} {{ messages[-1].role }} {{ messages|length }} {{ messages[1:]|length }} {{ add_generation_prompt }} {{ tools is none }} {{ bos_token }} {{ pad_token }}|
{{ undefined_thing.x }}
{{ nope + 'x' }}
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ 1 < 'a' }}
{{ n|length }}
{{ n.strip() }}
{{ raise_exception('no ' ~ n) }}
{{ nope() }}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for i in n %}{% endfor %}
{% set n.x = 1 %}
{{ l[0:1:0] }}
{{ m|tojson(true) }} {{ {'é': '日👍\x7f\u2028'}|tojson(ensure_ascii=true) }} {{ m|tojson(separators=(',', ':')) }} {{ m|tojson(false, 1, [';', '=']) }} {{ {'b': {'d': 1, 'c': []}, 'a': 2}|tojson(sort_keys=true) }} {{ m|tojson(sort_keys=true, indent=2) }}
{{ {1: 2, 'a': 3}|tojson(sort_keys=true) }}
{{ m|tojson(separators=3) }}
{{ [m, {'b': [0, {'c': 'x'}]}]|map(attribute='b.1.c')|list }} {{ objects|map(attribute='v', default='-')|list }} {{ [m]|selectattr('b.0', 'eq', 1)|list|length }} {{ [{'a.b': 1}]|map(attribute='a', default={'b': 2})|list }} {{ [[1, 2]]|map(attribute=1)|list }} {{ [m]|join(attribute='b.1.c') }}
{{ objects|map(attribute='nope.x')|list }}
{{ m.items is mapping }} {{ m['items'] is defined }} {{ {'items': 3}['items'] }} {{ {'items': 3}.items is number }} {{ m.pop is defined }} {{ m.values == 1 }} {{ m['keys'].x is defined }} {{ 'yes' if m['get'] else 'no' }} {{ m.copy is iterable }}
{{ range is defined }} {{ raise_exception is defined }} {{ namespace is undefined }} {{ dict is none }} {{ strftime_now is defined }} {{ loop is defined }}
{{ ['\u00a0', '\u3000é', '\u200b', '\U000e0001', '👍', '\x85', '\ufeff'] }} {{ {'\u2028': '\u00ad'} }}
{{ {[]: 1} }}
{{ nope|tojson }}
{{ 5 in 'abc' }}
{{ {'a': {'b': {}}}['a']['b'] }}{{ {'x': '}}'}.x }}{{ '%}' }}
{{ s.split('b')[0] | trim ~ '!' }} {{ 'a' ~ ' b '|trim }} {{ n + '1'|int }} {{ l|length > 2 and l|first == 3 }}
""".strip("\n").split("\n")

BLOCKS = [
    "{% macro f(x, y=2) %}<{{ x }}:{{ y }}>{% endmacro %}{{ f(1) }}{{ f(3, y=4) }}{{ f(y=5, x=6) }}{{ f() }}",
    "{% macro f(x, y=x ~ 'd') -%} {{ x|upper }}{{ y }} {%- endmacro %}{{ f('a') ~ f('b', 'c') }}{{ f('q')|length }}",
    "{% set v = 1 %}{% macro f() %}{{ v }}{% set v = 9 %}{{ v }}{% endmacro %}{% set v = 2 %}{{ f() }}{{ v }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro g(x) %}[{{ x }}]{% endmacro %}{% macro f(x) %}{{ g(x) }}{{ g(x ~ 1) }}{% endmacro %}{% for i in [1, 2] %}{{ f(i) }}{% endfor %}",
    "{% macro f(l) %}{% for x in l if x != 2 %}{{ x }}{% if x == 3 %}{% break %}{% endif %}{% endfor %}{% endmacro %}{{ f([1, 2, 3, 4]) }}",
    "{% for i in [1] %}{{ x is defined }}{{ fn is defined }}{% endfor %}{% macro fn(x) %}{{ x is defined }}{{ i is defined }}{% endmacro %}{% for i in [1] %}{{ fn() }}{{ fn(none) }}{% endfor %}",
    "{% if true %}{% macro f() %}in{% endmacro %}{% endif %}{{ f() }}{% set g = f %}{{ g() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}",
    "{% macro f(a, b) %}{% set t %}{{ a }}-{{ b }}{% endset %}{{ t|replace('-', '+') }}{% endmacro %}{{ f(messages[0].role, b='x') }}",
    "{% set x = 1 %}{% generation %}{{ x }}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
    "{% for i in l %}{% generation %}{% set y = i %}{{ loop.index }}{% endgeneration %}{{ y is defined }}{% endfor %}",
    "a\n  {% generation %}\n  b{% set ns = namespace(v=1) %}\n  {% endgeneration %}\nc{{ ns is defined }}",
    "{% set last = (messages|selectattr('role', 'equalto', 'user')|list)[-1] %}{% for m in messages %}{{ m == last }}{% endfor %}",
    "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools is none }}{% if not nope is defined %}{% set nope = none %}{% endif %}{{ nope }}",
    "{% set ns = namespace() %}{% set ns.i = 0 %}{% for m in messages %}{% if (m['role'] == 'user') != (ns.i % 2 == 0) %}{{ ns.i }}{% endif %}{% set ns.i = ns.i + 1 %}{% endfor %}{{ ns.i }}",
    "{% for o in objects %}{% set o = m.b[1] %}{% for k, v in o.items() if k != 'x' %}{% set out = {k: v}|tojson %}{{ out[:-1] }}{{ ', ' if not loop.last else ']' }}{% endfor %}{{ loop.last }}{% endfor %}",
    "{% set g = l|map('string') %}{{ 'yes' if g else 'no' }}{{ '1' in g }}{{ g|first }}{{ g|list }}{{ g|list }}{{ 'yes' if g else 'no' }}",
    "{% set g = messages|selectattr('role', 'eq', 'nope') %}{{ g is defined and g is iterable }}{{ g is sequence }}{{ 'yes' if g else 'no' }}{% for m in g %}x{% else %}none{% endfor %}{{ g[0] is defined }}",
    "{% set r = l|reverse %}{% for i in r %}{{ loop.length }}{{ i }}{% endfor %}{% for i in r %}x{% endfor %}{{ l|reverse|reverse }}{{ m|items|first }}{{ m|reverse|list }}",
    "{% set k = m.keys() %}{{ k|length }}{{ k|list }}{{ k|first }}{{ 'a' in k }}{{ k[0] is defined }}{{ k|join }}{{ k is sequence }}{{ 'no' if not {}.items() }}{{ m.items()|last }}{{ k|map('upper')|join }}",
    "{{ l|map('string')|length }}", "{{ l|select|last }}", "{{ m.keys()|tojson }}", "{{ objects|map(attribute='r')|tojson }}", "{{ [1]|reverse + [2] }}",
    "{{ l|sort }}{{ l|sort(reverse=true) }}{{ ['b', 'A', 'a', 'B']|sort }}{{ ['b', 'A', 'a', 'B']|sort(true) }}{{ ['b', 'A', 'a']|sort(case_sensitive=true) }}{{ e|sort }}{{ 'bca'|sort|join }}{{ ['Ö', 'o', 'ö', 'Z']|sort }}",
    "{{ objects|sort(attribute='r')|map(attribute='v', default='-')|join }}{{ messages|sort(attribute='content', reverse=true)|map(attribute='role')|list }}{{ [[2, 'a'], [1, 'b']]|sort(attribute=0) }}{{ m|sort }}{{ l|map('string')|sort }}",
    "{{ m|dictsort }}{{ {'b': 1, 'A': 2, 'a': 3}|dictsort }}{{ {'b': 1, 'A': 2}|dictsort(true) }}{{ {'b': 1, 'A': 2}|dictsort(by='value', reverse=true) }}{{ {512: 1, 0: 2, 64: 3}|dictsort }}{% for k, v in {'z': 1, 'y': 2}|dictsort %}{{ k }}{{ v }}{{ loop.last }}{% endfor %}",
    "{{ [1, 'a']|sort }}", "{{ 3|sort }}", "{{ l|dictsort }}", "{{ m|dictsort(by='x') }}", "{{ {1: 2, 'a': 3}|dictsort }}", "{{ objects|sort(attribute='v') }}",
    "{{ 'ÄÖÜ É Σ'[:5]|lower }}{{ 'ÀЖ日ǅⅧ'.lower() }}",
    "{{ \"it's a-b (c) [d] {e} <f> g\u00a0h {'x': 1}\"|title }}{{ m|title }}{{ ''|title }}|{{ \"it's x\".title() }}{{ ' --a'|title }}",
    "{{ '3.9'|int }} {{ ' -12 '|int }} {{ '1_000'|int }} {{ '_1'|int }} {{ '1e3'|int }} {{ '.5'|int(2) }} {{ '1.2.3'|int(4) }} {{ ''|int(5) }} {{ '+7'|int }} {{ 'inf'|int(6) }} {{ '-'|int }} {{ '- 1'|int }} {{ '0x1f'|int }} {{ none|int(8) }} {{ l|int(9) }} {{ '1.5_0'|int }}",
    "{{ nope|int(5) }}", "{{ n|indent }}", "{{ nope|indent }}",
    "{{ ''|indent(2, true) }}|{{ '\\na'|indent(2, true) }}|{{ 'a\\n'|indent(2) }}|{{ '\\n\\na'|indent(2, true, true) }}|",
    "{{ true|abs is boolean }}{{ true|abs }}{{ false|abs }}{{ -2.5|abs }}{{ (-2.5)|abs }}{{ l|safe is string }}{{ nope|safe }}{{ m|safe|length }}{{ none|safe }}",
    "{{ (1, 2, 3)[::-1] }}{{ (1,)[1:] }}{{ l[:0] }}{{ '<' ~ ('a'|safe) ~ '>' }}{{ 'b'|safe ~ 1 }}{{ ('c'|safe)|upper }}",
    "{% set x = 1 %}{% set b %}{{ x }}{% set x = 2 %}{% set y = 3 %}{{ x }}{% endset %}{{ b }}{{ x }}{{ y is defined }}{% for i in l %}{% set c %}{% set q = i %}{{ loop.index }}{{ q }}{% endset %}{{ c }}{{ q is defined }}{% endfor %}",
    "{% for i in l %}{{ i }}{% break %}{% else %}else{% endfor %}{% for i in l %}{% continue %}{% else %}else{% endfor %}{% for i in l %}{% if loop.last %}{% break %}{% endif %}{{ i }}{% else %}else{% endfor %}{% for i in l %}{% if i == 3 %}{% continue %}{% endif %}{{ i }}{% else %}else{% endfor %}",
    "{{ dict(3) }}", "{{ namespace([1]) }}", "{{ dict(m, m) }}",
    "{{ namespace({'a': 2}, b=3).a }}{{ dict({'a': 1}, a=2) }}{{ dict(m, z=1)|length }}{{ dict() }}",
    "{% macro f(a, b, c, d, e, g, h, i, j, k) %}{{ a }}{{ k }}{% endmacro %}{{ f(1, 2, 3, 4, 5, 6, 7, 8, 9, 10) }}",
    "{% macro f(a, kwargs) %}{{ kwargs }}{% endmacro %}{{ f(1, kwargs=2) }}{{ f is defined }}{{ f == f }}{{ f|length }}",
    "{% macro f(n) %}{{ f(n - 1) }}{% endmacro %}{{ f(1) }}",
    "a\n  {% if t %}\n  b\n  {% endif %}\nc\n",
    "a\r\n{% for i in l %}\r\n{{ i }}\r\n{% endfor %}\r\nb\r\n\r\n",
    "   {%- if t %}   x   {%- endif %}\n\n  {# c #}\n  y  {# d #}\nz",
    "{% if t %}\n\n  two lines\n{% endif %}\n",
    "  {% set x = 1 %}  {{ x }}  \n  {{ x }}\n",
    "{% for i in l -%}\n   {{ i }}\n{%- endfor %}",
    "x  {%+ if t %}\n y\n {%+ endif %}\nz",
    "{{ 'a' }}\n{{ 'b' -}}\n\n{{- 'c' }}\n\n",
    "\t{% if t %}\ttab\n\t{% endif %}\n",
    "a{#\n comment of\n lines -#}\n\n b{%- set y = 2 -%}\n c{{ y }}",
    "no tags { at } all {%\n if t\n%}ok{%\tendif\t%}\n",
    "", "\n", "\n\n", " {{ t }}", "{{ t }}\n",
]


def compile_template(text):
    template = chat_template_utils._cached_compile_jinja_template(text)
    template.environment.globals.pop("strftime_now", None)
    template.globals.pop("strftime_now", None)
    return template


def render(text, conversation, prompt):
    variables = dict(tools=None, documents=None)
    variables.update(TOKENS)
    variables.update({k: v for k, v in conversation.items() if k in ("messages", "tools")})
    variables.update(conversation.get("chat_template_kwargs", {}))
    try:
        return compile_template(text).render(add_generation_prompt=prompt, **variables)
    except Exception:  # whatever Jinja's sandbox and Python refuse
        return None


def write(name, value):
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in value)
    (GOLDEN / name).write_text("[\n" + lines + "\n]\n", encoding="utf-8")


def main():
    GOLDEN.mkdir(parents=True, exist_ok=True)
    rendered = []
    for name, text in TEMPLATES.items():
        (GOLDEN / f"{name}.jinja").write_text(text, encoding="utf-8")
    for conversation in CONVERSATIONS:
        texts = {name: [render(text, conversation, prompt) for prompt in (False, True)]
                 for name, text in TEMPLATES.items()}
        rendered.append({"conversation": conversation, "texts": texts})
    write("rendered.json", rendered)
    conversation = {"messages": turns("hi", "ho", system="s"), "chat_template_kwargs": VARIABLES}
    lines = [[text, render(text, conversation, False)] for text in EXPRESSIONS + BLOCKS]
    write("expressions.json", [conversation] + lines)
    refused = sum(text is None for _, text in lines)
    print(f"{len(lines)} expressions, of which {refused} are refused")


if __name__ == "__main__":
    main()
