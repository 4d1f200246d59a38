"""What a recipe may say, what it means, and how it complains."""

import dataclasses
import json

import pytest

from genkit.core.settings import plain
from genkit.errors import RecipeError, UnknownNameError
from genkit.plugins import hookimpl, lazy
from genkit.recipes.document import Document
from genkit.recipes.json_schema import json_schema
from genkit.recipes.recipe import Recipe

HEAD = {"version": 1, "backend": {"type": "fake", "model": "m"}}


def problems(kit, path, overrides=()):
    """What a recipe complains of: line and message of each problem."""
    with pytest.raises(RecipeError) as caught:
        kit.recipe(path, overrides)
    return [
        (int(problem.place.split(":")[-2]), ".".join(map(str, problem.path)), problem.message)
        for problem in caught.value.problems
    ]


def test_what_is_left_out_has_its_default(kit):
    recipe = kit.recipe(HEAD)
    assert recipe.context.type == "text"
    assert recipe.cache.type == "dynamic"
    assert recipe.decoder.type == "autoregressive"
    assert recipe.processors == ()
    assert recipe.sampler.type == "greedy"
    assert [criterion.type for criterion in recipe.stop_criteria] == ["eos"]
    assert recipe.seed is None


def test_the_order_of_the_list_is_the_order_of_application(kit, write):
    recipe = kit.recipe(write("processors: [{type: top_p, p: 0.9}, {type: scale}, {type: scale}]"))
    assert [processor.type for processor in recipe.processors] == ["top_p", "scale", "scale"]


def test_an_empty_list_of_stop_criteria_is_allowed(kit, write):
    assert kit.recipe(write("stop_criteria: []")).stop_criteria == ()


def test_a_recipe_is_frozen(kit):
    recipe = kit.recipe(HEAD)
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.seed = 3


def test_numbers_mean_what_they_look_like(kit, write):
    recipe = kit.recipe(write("processors: [{type: scale, factor: 7e-1, count: 1e3}]\nseed: 1e3"))
    assert recipe.processors[0].factor == 0.7
    assert recipe.processors[0].count == 1000
    assert recipe.seed == 1000


def test_words_in_a_list_of_strings_stay_words(kit, write):
    recipe = kit.recipe(write("processors: [{type: scale, words: [yes, no, 1:30]}]"))
    assert recipe.processors[0].words == ("yes", "no", "1:30")


def test_a_bare_stop_string_is_one_string(kit, write):
    recipe = kit.recipe(write("stop_criteria: [{type: stop_strings, strings: abc}]"))
    assert recipe.stop_criteria[0].strings == ("abc",)


@pytest.mark.parametrize(
    ("section", "path", "found"),
    [
        ("processors: [{type: scale, factor: 1e-1x}]", "processors.0.factor", "'1e-1x' (text)"),
        ("processors: [{type: scale, factor: '0.7'}]", "processors.0.factor", "text '0.7'"),
        ("processors: [{type: scale, factor: 1_000}]", "processors.0.factor", "text '1_000'"),
        ("processors: [{type: scale, factor: 1:30}]", "processors.0.factor", "'1:30' (text)"),
        ("processors: [{type: scale, factor: yes}]", "processors.0.factor", "'yes' (text)"),
        ("processors: [{type: scale, factor: null}]", "processors.0.factor", "None"),
        ("processors: [{type: scale, factor: .inf}]", "processors.0.factor", "inf"),
        ("processors: [{type: scale, factor: true}]", "processors.0.factor", "True"),
        ("processors: [{type: scale, factor: -1}]", "processors.0.factor", "-1"),
        ("processors: [{type: scale, count: 010}]", "processors.0.count", "text '010'"),
        ("processors: [{type: scale, count: 1.5}]", "processors.0.count", "1.5"),
        ("processors: [{type: scale, enabled: yes}]", "processors.0.enabled", "text 'yes'"),
        ("processors: [{type: scale, enabled: 1}]", "processors.0.enabled", "number 1"),
        ("processors: [{type: scale, name: 42}]", "processors.0.name", "42"),
        ("processors: [{type: scale, words: [a, 42]}]", "processors.0.words.1", "42"),
        ("processors: [{type: scale, bias: {5: '010'}}]", "processors.0.bias.5", "text '010'"),
        ("seed: 010", "seed", "text '010'"),
        ("seed: true", "seed", "true"),
        ("seed: -1", "seed", "number -1"),
        ("seed: 18446744073709551616", "seed", "number 18446744073709551616"),
        ("seed: 1.5", "seed", "number 1.5"),
        ("processors: {type: scale}", "processors", "found a mapping"),
        ("processors:", "processors", "found nothing"),
        ("sampler: greedy", "sampler", "{type: greedy}, found text 'greedy'"),
        ("sampler: [greedy]", "sampler", "found a list"),
        (
            "sampler: {}",
            "sampler.type",
            "known: adaptive_p, categorical, fragile, greedy, mirostat",
        ),
        ("sampler: {type: 3}", "sampler.type", "found number 3"),
    ],
)
def test_a_wrong_value_is_named_with_line_key_path_and_type(kit, write, section, path, found):
    [(line, where, message)] = problems(kit, write(section))
    assert line == 3
    assert where == path
    assert found in message


@pytest.mark.parametrize(
    ("section", "path", "hint"),
    [
        ("procesors: []", "procesors", "did you mean 'processors'"),
        ("processors: [{type: scale, facter: 2}]", "processors.0.facter", "did you mean 'factor'"),
        ("processors: [{type: scael}]", "processors.0.type", "did you mean 'scale'"),
        ("sampler: {type: scale}", "sampler.type", "'scale' is the name of a logits processor"),
        ("sampler: {type: greedy, k: 3}", "sampler.k", "options: none"),
    ],
)
def test_a_misspelt_name_tells_the_nearest_or_where_it_belongs(kit, write, section, path, hint):
    [(line, where, message)] = problems(kit, write(section))
    assert (line, where) == (3, path)
    assert hint in message


def test_the_known_names_are_listed(kit, write):
    [(_, _, message)] = problems(kit, write("sampler: {type: mirrostat}"))
    assert "known: adaptive_p, categorical, fragile, greedy, mirostat" in message


def test_everything_wrong_is_reported_at_once(kit, write):
    text = (
        "sampler: {type: gredy}\nprocessors:\n  - {type: scale, factor: 0}\n  - {type: x}\nseed: x"
    )
    assert [line for line, _, _ in problems(kit, write(text))] == [5, 6, 3, 7]


@pytest.mark.parametrize("head", ["", "# nothing but a comment\n", "- 1\n", "just text\n"])
def test_what_is_no_mapping_is_refused(kit, write, head):
    with pytest.raises(RecipeError, match="a recipe is a mapping with the keys version, backend"):
        kit.recipe(write("", head))


def test_version_and_backend_are_required(kit, write):
    found = problems(kit, write("", head="seed: 3\n"))
    assert [(path, "write `" in message) for _, path, message in found] == [
        ("version", True),
        ("backend", True),
    ]


@pytest.mark.parametrize("version", ["2", "'1'", "true", "null"])
def test_another_version_is_refused(kit, write, version):
    head = f"version: {version}\nbackend: {{type: fake, model: m}}\n"
    [(line, path, message)] = problems(kit, write("", head))
    assert (line, path) == (1, "version")
    assert "reads version 1" in message


@pytest.mark.parametrize("strings", ["[]", "[null]", "['']"])
def test_stop_strings_that_mean_nothing_are_refused_by_name(kit, write, strings):
    found = problems(kit, write(f"stop_criteria: [{{type: stop_strings, strings: {strings}}}]"))
    assert all(path.startswith("stop_criteria.0.strings") for _, path, _ in found)


def test_a_bug_in_a_part_is_reported_with_its_place(kit, write):
    [(line, path, message)] = problems(kit, write("sampler: {type: fragile}"))
    assert (line, path) == (3, "sampler")
    assert "fragile cannot be made: KeyError: 'oops'" in message


def test_a_part_may_read_text_on_purpose(kit, write):
    assert kit.recipe(write("processors: [{type: scale, span: 5s}]")).processors[0].span == 5.0


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ("[{type: answer_limit, limit: 5}, {type: answer_limit, limit: 6}]", "two answer_limit"),
        ("[{type: answer_limit, limit: 8}, {type: total_limit, limit: 8}]", "drop one"),
        ("[{type: total_limit, limit: 8}, {type: answer_limit, limit: 9}]", "drop one"),
    ],
)
def test_contradictory_limits_are_refused(kit, write, criteria, message):
    [(_, path, said)] = problems(kit, write(f"stop_criteria: {criteria}"))
    assert path == "stop_criteria.1"
    assert message in said


def test_limits_that_agree_are_allowed(kit, write):
    criteria = "[{type: answer_limit, limit: 5}, {type: total_limit, limit: 8}, {type: eos}]"
    assert len(kit.recipe(write(f"stop_criteria: {criteria}")).stop_criteria) == 3


def test_an_option_may_be_a_part(kit, write):
    head = (
        "version: 1\n"
        "backend:\n"
        "  type: fake\n"
        "  model: big\n"
        "  helper: {type: fake, model: small}\n"
        "  others: [{type: fake, model: one}]\n"
    )
    recipe = kit.recipe(write("", head))
    assert recipe.backend.helper.model == "small"
    assert recipe.backend.others[0].model == "one"
    assert kit.recipe(recipe.to_dict()) == recipe
    broken = write("", head.replace("model: small", "modle: small"))
    found = {(line, path) for line, path, _ in problems(kit, broken)}
    assert found == {(5, "backend.helper.model"), (5, "backend.helper.modle")}


# Overrides


def test_overrides_are_applied_before_the_check(kit, write):
    path = write("processors: [{type: scale, factor: -1}]")
    recipe = kit.recipe(
        path,
        [
            "processors.0.factor=0.5",
            "processors.0.words=[a, b]",
            "processors.+={type: top_k, k: 5}",
            "processors.1.k=6",
            "context.overflow=truncate_left",
            "sampler.type=categorical",
            "seed=7",
        ],
    )
    assert recipe.processors[0].factor == 0.5
    assert recipe.processors[0].words == ("a", "b")
    assert recipe.processors[1].k == 6
    assert recipe.context.overflow == "truncate_left"
    assert recipe.sampler.type == "categorical"
    assert recipe.seed == 7


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "expected path.to.key=value"),
        ("=3", "expected path.to.key=value"),
        ("a..b=3", "expected path.to.key=value"),
        ("processors.2.k=1", "no item '2'; they are numbered 0 to 0"),
        ("processors.-1.k=1", "no item '-1'"),
        ("processors.first=1", "no item 'first'"),
        ("sampelr.type=greedy", "did you mean 'sampler'"),
        ("seed.x=1", "seed: has no keys: it is nothing"),
        ("seed=[1", "this is not YAML"),
        ("processors.0.facter=1", "did you mean 'factor'"),
        ("processors.0.factor=010", "text '010'"),
    ],
)
def test_a_wrong_override_is_named_in_its_own_words(kit, write, override, message):
    with pytest.raises(RecipeError) as caught:
        kit.recipe(write("processors: [{type: scale}]"), [override])
    assert str(caught.value).startswith(f"--set {override}: ")
    assert message in str(caught.value)


def test_an_override_leaves_the_given_data_alone(kit):
    data = {**HEAD, "processors": [{"type": "scale"}]}
    kit.recipe(data, ["processors.0.factor=2", "processors.+={type: scale}"])
    assert data["processors"] == [{"type": "scale"}]


# Back to data


def test_the_dump_is_plain_and_gives_the_recipe_back(kit, write):
    recipe = kit.recipe(
        write(
            "processors: [{type: scale, factor: 1e-3, words: [a], bias: {5: 1.0}}]\n"
            "stop_criteria: [{type: stop_strings, strings: [a, b]}]\nseed: 18446744073709551615\n"
        )
    )
    data = recipe.to_dict()
    assert list(data) == list(Recipe.__dataclass_fields__)[:9]
    assert json.loads(json.dumps(data))["processors"][0]["bias"] == {"5": 1.0}
    assert next(iter(data["processors"][0])) == "type"
    assert kit.recipe(data) == recipe
    assert kit.recipe(data).to_dict() == data


def test_sets_and_paths_become_plain(tmp_path):
    assert plain(frozenset({2, 1})) == [1, 2]
    assert plain({"a": (tmp_path,)}) == {"a": [str(tmp_path)]}


def test_each_value_knows_who_says_it(kit, write):
    path = write("processors:\n  - type: scale\n    factor: 2.0\n    words: [a]\n")
    recipe = kit.recipe(path, ["processors.0.count=4", "sampler={type: categorical}"])
    sources = {".".join(map(str, s.path)): s.source for s in recipe.settings()}
    assert sources["version"] == f"{path}:1"
    assert sources["backend.model"] == f"{path}:2"
    assert sources["processors.0.factor"] == f"{path}:5"
    assert sources["processors.0.words.0"] == f"{path}:6"
    assert sources["processors.0.count"] == "--set processors.0.count=4"
    assert sources["processors.0.enabled"] == "default"
    assert sources["sampler.type"] == "--set sampler={type: categorical}"
    assert sources["cache.type"] == "default"
    assert sources["stop_criteria.0.type"] == "default"
    assert sources["seed"] == "default"


def test_a_value_of_one_text_is_said_where_the_text_is(kit, write):
    recipe = kit.recipe(write("stop_criteria: [{type: stop_strings, strings: abc}]"))
    sources = {s.path: s.source for s in recipe.settings()}
    assert sources["stop_criteria", 0, "strings", 0].endswith(":3")
    assert sources["stop_criteria", 0, "include"] == "default"


def test_data_that_came_from_no_file_is_given(kit):
    sources = {s.path: s.source for s in kit.recipe(HEAD).settings()}
    assert sources["backend", "model"] == "given"
    assert sources["sampler", "type"] == "default"


def test_an_error_in_data_has_no_place(kit):
    with pytest.raises(RecipeError, match=r"^sampler: expected a mapping"):
        kit.recipe({**HEAD, "sampler": "greedy"})


def test_a_document_of_nothing_has_no_place():
    assert Document(None).place(("a",)) == ""


# Names and files


def test_a_registered_name_is_a_recipe(tmp_path):
    from genkit.kit import Kit

    path = tmp_path / "calm-chat.yaml"
    path.write_text("version: 1\nbackend: {type: pytorch, model: x}\n")

    class Recipes:
        @hookimpl
        def genkit_register_recipes(self):
            return [path]

    kit = Kit([Recipes()], entry_points=False)
    assert kit.recipe("calm-chat") == kit.recipe(path)
    with pytest.raises(UnknownNameError, match="did you mean 'calm-chat'"):
        kit.recipe("calm-chta")


@pytest.mark.parametrize("name", ["nowhere.yaml", "nowhere.yml", "./nowhere", "a/nowhere"])
def test_what_looks_like_a_path_is_one(kit, name):
    with pytest.raises(RecipeError, match="No such file"):
        kit.recipe(name)


def test_an_existing_file_needs_no_suffix(kit, write, monkeypatch):
    path = write("")
    path.rename(path.with_name("recipe"))
    monkeypatch.chdir(path.parent)
    assert kit.recipe("recipe").backend.model == "m"


# The schema for editors


def test_the_json_schema_knows_every_part(kit):
    schema = json_schema(kit.registry)
    assert schema["required"] == ["version", "backend"]
    assert schema["additionalProperties"] is False
    scale = schema["$defs"]["Scale"]
    assert scale["properties"]["type"]["const"] == "scale"
    assert scale["required"] == ["type"]
    choices = schema["properties"]["processors"]["items"]["oneOf"]
    assert {"$ref": "#/$defs/Scale"} in choices
    assert schema["properties"]["sampler"]["default"] == {"type": "greedy"}
    json.dumps(schema)


def test_a_part_that_cannot_be_imported_is_left_out_of_the_schema(caplog):
    from genkit.kit import Kit

    class Broken:
        @hookimpl
        def genkit_register_samplers(self):
            return [lazy("broken", "genkit_nowhere:Broken")]

    schema = json_schema(Kit([Broken()], entry_points=False).registry)
    assert "broken" not in json.dumps(schema)
    assert "genkit_nowhere" in caplog.text


# What nobody writes by chance


@pytest.mark.parametrize("index", ["²", "9" * 5000])
def test_an_override_counts_in_plain_digits(kit, write, index):
    recipe = write("processors: [{type: scale}]")
    for path in (f"processors.{index}.count=1", f"processors.{index}=1"):
        with pytest.raises(RecipeError, match="there is no item"):
            kit.recipe(recipe, [path])
    with pytest.raises(RecipeError):
        kit.recipe(recipe, [f"processors.0.bias.{index}=1"])


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_no_file_can_be_called_is_no_recipe(kit, name):
    with pytest.raises(UnknownNameError):
        kit.recipe(name)
    with pytest.raises(RecipeError, match="no file can be called"):
        kit.recipe(f"{name}.yaml")


def test_an_option_called_self_is_unknown(kit, write):
    path = write("processors:\n  - {type: top_k, k: 1, self: 1}")
    [(line, where, message)] = problems(kit, path)
    assert (line, where) == (4, "processors.0.self")
    assert message == "there is no such option; options: k, min_keep, ties"


@pytest.mark.parametrize("says", ["raises", "text", "none_after_two"])
def test_a_bound_with_a_bug_is_reported_with_its_part(kit, write, says):
    path = write(f"stop_criteria:\n  - {{type: eos}}\n  - {{type: boundless, says: {says}}}")
    [(line, where, message)] = problems(kit, path)
    assert (line, where) == (5, "stop_criteria.1")
    assert "boundless does not say its bound: " in message


@pytest.mark.parametrize("cache", ["", "cache: {type: prefix}\n"])
def test_a_cache_that_a_backend_cannot_decode_on_is_refused_unloaded(kit, write, cache):
    head = "version: 1\nbackend: {type: pytorch, model: m, compile: true}\n"
    [(_, where, message)] = problems(kit, write(cache, head))
    assert where == "cache"
    assert "`compile: true`" in message
    assert "the cache 'prefix'" in message or not cache
    assert "`cache: {type: static}`" in message
    assert kit.recipe(write("cache: {type: static}\n", head)).backend.compile


@pytest.mark.parametrize(
    ("written", "advice"),
    [("1_000", "like 1000 and without quotes"), ("'0.7'", "like 10, 0.5 or 1e-3 and without")],
)
def test_text_that_looks_like_a_number_is_told_how_to_be_one(kit, write, written, advice):
    [(_, _, message)] = problems(kit, write(f"processors: [{{type: scale, factor: {written}}}]"))
    assert advice in message
