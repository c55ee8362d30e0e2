/**
 * Reads one YAML file. A scalar without quotes has the type that gopkg.in/yaml.v2 gives it, because
 * envoyproxy/ratelimit reads its files with that package: `yes` is a boolean, `010` is 8, and a
 * text may be written as an integer or a boolean. Stricter than there: a repeated key, a tag, a
 * merge key and a second document are errors. A fault is a StartError with the file and the line.
 */

import {
  type Alias,
  Composer,
  type CST,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  Parser,
  Scalar,
  visit,
  type YAMLMap,
} from 'yaml';
import { RLS_YAML_DEPTH_MAX } from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { StartError } from '../../core/errors.ts';
import type { JsonObject, JsonValue } from '../../core/json.ts';

export type YamlNode = Node;

/** A key of a map with its value. */
export interface YamlField {
  name: string;
  key: Node;
  value: Node;
}

const NULL_TEXTS = new Set(['', '~', 'null', 'Null', 'NULL']);
const TRUE_TEXTS = new Set('y Y yes Yes YES true True TRUE on On ON'.split(' '));
const FALSE_TEXTS = new Set('n N no No NO false False FALSE off Off OFF'.split(' '));
const FLOAT = /^[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?$/;
const NOT_FINITE = /^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$/;
const INTEGER = /^([-+]?)(0[xX][\da-fA-F]+|0[bB][01]+|0[oO][0-7]+|0[0-7]*|[1-9]\d*)$/;
/** Larger integers are no `int` of Go. */
const GO_INT_END = 2 ** 63;

/** The tag of a text. Such a scalar is a text even if it is written without quotes. */
const TEXT_TAG = 'tag:yaml.org,2002:str';

type ScalarValue =
  | { type: 'null' }
  | { type: 'boolean'; value: boolean }
  | { type: 'integer' | 'float'; value: number }
  | { type: 'text' };

export class YamlFile {
  /** Undefined for a file without content. */
  readonly root: Node | undefined;
  readonly #name: string;
  readonly #lines = new LineCounter();
  readonly #targets = new Map<Alias, Node>();
  /** Maps of JSON by their nodes: many aliases of one map share its memory. */
  readonly #json = new Map<Node, JsonObject>();

  constructor(name: string, text: string) {
    this.#name = name;
    const documents = [...this.#compose(this.#parse(text.replace(/^\ufeff/, '')))];
    const [document, ...others] = documents.filter(hasContent);
    const surplus = others[0]?.contents;
    if (surplus) this.fail(surplus, 'a file must have one YAML document; got a second one');
    this.root = document?.contents ?? undefined;
    if (document !== undefined) this.#check(document);
  }

  /** @returns FILE:LINE. @param node undefined for the file as a whole */
  positionOf(node: Node | undefined): string {
    return this.#positionAt(node?.range?.[0] ?? 0);
  }

  #positionAt(offset: number): string {
    return `${this.#name}:${this.#lines.linePos(offset).line}`;
  }

  fail(node: Node | undefined, message: string): never {
    throw new StartError(`${this.positionOf(node)}: ${message}`);
  }

  /** @param accepted completes the sentence "... must be" */
  failValue(name: string, node: Node, accepted: string): never {
    this.fail(node, `${formatValue(name)} must be ${accepted}; got ${this.#describe(node)}`);
  }

  isNull(node: Node): boolean {
    const target = this.resolve(node);
    return isScalar(target) && readScalar(target).type === 'null';
  }

  /** The node that an alias stands for, or the node itself. */
  resolve(node: Node): Node {
    return isAlias(node) ? this.#targets.get(node)! : node;
  }

  /** @param what what the map is, for the error */
  fields(node: Node, what: string): YamlField[] {
    const map = this.resolve(node);
    if (!isMap(map)) {
      return this.fail(node, `${what} must be a map of YAML; got ${this.#describe(node)}`);
    }
    return pairsOf(map).map(({ key, value }) => ({ name: this.#keyText(key), key, value }));
  }

  /** The elements of a list; none for null. */
  list(name: string, node: Node): readonly Node[] {
    if (this.isNull(node)) return [];
    const list = this.resolve(node);
    if (!isSeq(list)) return this.failValue(name, node, 'a list of YAML');
    return list.items as Node[];
  }

  /** A text, also one that is written as an integer or a boolean; undefined for null. */
  text(name: string, node: Node): string | undefined {
    const scalar = this.resolve(node);
    if (!isScalar(scalar)) return this.failValue(name, node, 'a text');
    const value = readScalar(scalar);
    if (value.type === 'null') return undefined;
    if (value.type === 'float') {
      return this.failValue(name, node, 'a text; put a number that is no integer in quotes');
    }
    const text = textOf(scalar);
    if (!text.isWellFormed()) {
      return this.fail(node, `${formatValue(name)} must be Unicode; got a lone surrogate`);
    }
    return text;
  }

  /** Undefined for null. */
  integer(name: string, node: Node, minimum: number, maximum: number): number | undefined {
    const scalar = this.resolve(node);
    const accepted = `an integer from ${minimum} to ${maximum}, without quotes`;
    if (!isScalar(scalar)) return this.failValue(name, node, accepted);
    const value = readScalar(scalar);
    if (value.type === 'null') return undefined;
    if (value.type === 'integer' && value.value >= minimum && value.value <= maximum) {
      return value.value;
    }
    return this.failValue(name, node, accepted);
  }

  /** False for null. */
  flag(name: string, node: Node): boolean {
    const scalar = this.resolve(node);
    if (isScalar(scalar)) {
      const value = readScalar(scalar);
      if (value.type === 'boolean') return value.value;
      if (value.type === 'null') return false;
    }
    return this.failValue(name, node, 'true or false, without quotes');
  }

  /**
   * A map as JSON; undefined for null.
   * @param maxBytes of the JSON text: an alias in it may stand for much more than its own text
   */
  json(name: string, node: Node, maxBytes: number): JsonObject | undefined {
    if (this.isNull(node)) return undefined;
    const map = this.resolve(node);
    if (!isMap(map)) return this.failValue(name, node, 'a map of YAML');
    const known = this.#json.get(map);
    if (known !== undefined) return known;
    let bytes = 0;
    const count = (text: string) => {
      bytes += text.length + 1;
      if (bytes > maxBytes) this.failValue(name, node, `at most ${maxBytes} bytes of JSON`);
    };
    const convert = (part: Node, depth: number): JsonValue => {
      const target = this.resolve(part);
      if (depth > RLS_YAML_DEPTH_MAX) return this.#failDepth(part);
      if (isSeq(target)) {
        count('[]');
        return (target.items as Node[]).map((item) => convert(item, depth + 1));
      }
      if (isMap(target)) {
        count('{}');
        const entries = pairsOf(target).map(({ key, value }) => {
          const field = this.#keyText(key);
          count(field);
          return [field, convert(value, depth + 1)] as const;
        });
        // Not by assignment: "__proto__" is a key like any other.
        return Object.fromEntries(entries);
      }
      const scalar = target as Scalar;
      const value = readScalar(scalar);
      count(textOf(scalar));
      if (value.type === 'null') return null;
      if (value.type === 'text') return this.text(name, part)!;
      if (value.type === 'boolean' || Number.isFinite(value.value)) return value.value;
      return this.failValue(name, part, 'a map of values that JSON has');
    };
    const object = convert(map, 0) as JsonObject;
    if (Buffer.byteLength(JSON.stringify(object)) > maxBytes) {
      this.failValue(name, node, `at most ${maxBytes} bytes of JSON`);
    }
    this.#json.set(map, object);
    return object;
  }

  /** Parses by lexemes, because the composer after it ends the process on very deep nesting. */
  *#parse(text: string): Generator<CST.Token> {
    const parser = new Parser(this.#lines.addNewLine);
    this.#lines.addNewLine(0);
    let offset = 0;
    for (const lexeme of new Lexer().lex(text)) {
      yield* parser.next(lexeme);
      offset += lexeme.length;
      if (parser.stack.length > RLS_YAML_DEPTH_MAX) {
        throw new StartError(`${this.#positionAt(offset)}: ${TOO_DEEP}`);
      }
    }
    yield* parser.end();
  }

  *#compose(tokens: Iterable<CST.Token>): Generator<Document.Parsed> {
    const options = { schema: 'failsafe', version: '1.2', uniqueKeys: false } as const;
    for (const document of new Composer({ ...options, prettyErrors: false }).compose(tokens)) {
      const [error] = document.errors;
      if (error !== undefined) {
        const reason = error.message.replace(/\.$/, '');
        throw new StartError(`${this.#positionAt(error.pos[0])}: this is not YAML: ${reason}`);
      }
      yield document;
    }
  }

  /** Rejects tags, unknown aliases and repeated keys, and finds what each alias stands for. */
  #check(document: Document.Parsed): void {
    const anchors = new Map<string, Node>();
    visit(document, {
      Node: (_key, node) => {
        if (isAlias(node)) {
          const target = anchors.get(node.source);
          if (target === undefined) {
            this.fail(node, `*${node.source} is no anchor; a text with a * must be in quotes`);
          }
          this.#targets.set(node, target);
          return;
        }
        const { anchor, tag } = node as Scalar | YAMLMap;
        if (anchor !== undefined) anchors.set(anchor, node as Node);
        if (tag !== undefined && tag !== TEXT_TAG && tag !== '!') {
          this.fail(node as Node, `a tag must be !!str or left out; got ${formatValue(tag)}`);
        }
        if (isMap(node)) this.#requireDifferentKeys(node);
      },
    });
  }

  #requireDifferentKeys(map: YAMLMap): void {
    const first = new Map<string, Node>();
    for (const { key } of pairsOf(map)) {
      const name = this.#keyText(key);
      const other = first.get(name);
      if (other !== undefined) {
        const where = this.positionOf(other);
        this.fail(key, `the key ${formatValue(name)} is repeated; it is also at ${where}`);
      }
      first.set(name, key);
    }
  }

  #keyText(key: Node): string {
    if (!isScalar(key)) return this.fail(key, `a key must be a text; got ${this.#describe(key)}`);
    const text = textOf(key);
    if (!text.isWellFormed()) this.fail(key, 'a key must be Unicode; got a lone surrogate');
    if (key.type === 'PLAIN' && text === '<<') {
      return this.fail(key, 'the merge key << is not supported: repeat the fields that it merges');
    }
    return text;
  }

  #failDepth(node: Node): never {
    this.fail(node, TOO_DEEP);
  }

  #describe(node: Node): string {
    const target = this.resolve(node);
    if (isMap(target)) return 'a map';
    if (isSeq(target)) return `a list of ${target.items.length}`;
    if (!isScalar(target) || readScalar(target).type === 'null') return 'nothing';
    const text = textOf(target);
    return isQuoted(target) || text.length > 64 ? formatValue(text) : text;
  }
}

const TOO_DEEP = `YAML must be nested at most ${RLS_YAML_DEPTH_MAX} deep; got more`;

function hasContent({ contents }: Document.Parsed): boolean {
  return contents !== null && !(isScalar(contents) && readScalar(contents).type === 'null');
}

/** A key without a value has the value null. */
function pairsOf(map: YAMLMap): { key: Node; value: Node }[] {
  return (map.items as { key: Node; value: Node | null }[]).map(({ key, value }) => {
    return { key, value: value ?? nullAt(key) };
  });
}

function nullAt({ range }: Node): Node {
  const scalar = new Scalar(null);
  scalar.type = 'PLAIN';
  if (range) scalar.range = range;
  return scalar;
}

function textOf(scalar: Scalar): string {
  return typeof scalar.value === 'string' ? scalar.value : '';
}

function isQuoted({ type, tag }: Scalar): boolean {
  return type !== 'PLAIN' || tag !== undefined;
}

/** Whether a scalar as a key is anything but a text, which envoyproxy/ratelimit rejects. */
export function isTextKey(key: YamlNode): boolean {
  return isScalar(key) && readScalar(key).type === 'text';
}

function readScalar(scalar: Scalar): ScalarValue {
  if (isQuoted(scalar)) return { type: 'text' };
  const text = textOf(scalar);
  if (NULL_TEXTS.has(text)) return { type: 'null' };
  if (TRUE_TEXTS.has(text)) return { type: 'boolean', value: true };
  if (FALSE_TEXTS.has(text)) return { type: 'boolean', value: false };
  if (NOT_FINITE.test(text)) return { type: 'float', value: Number.NaN };
  if (!/^[-+.\d]/.test(text)) return { type: 'text' };
  const plain = text.replaceAll('_', '');
  const [, sign, digits] = INTEGER.exec(plain) ?? [];
  if (digits !== undefined) {
    const isOldOctal = /^0\d/.test(digits);
    const magnitude = isOldOctal ? Number.parseInt(digits, 8) : Number(digits);
    // Not -0: JSON would not have it, and no message shows it.
    const value = sign === '-' && magnitude > 0 ? -magnitude : magnitude;
    return { type: magnitude < GO_INT_END ? 'integer' : 'float', value };
  }
  return FLOAT.test(plain) ? { type: 'float', value: Number(plain) } : { type: 'text' };
}
