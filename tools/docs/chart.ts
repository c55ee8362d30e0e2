/**
 * Renders the values of the Helm chart: `values.yaml`, the table of the documentation, and
 * `values.schema.json`, by which Helm validates the values of a user.
 */

import { Document, isMap, isScalar, type YAMLMap } from 'yaml';
import { CHART_VALUES } from './chart-values.ts';
import type { JsonSchema } from './config-schema.ts';
import { inlineCode, markdownTable, wrapProse } from './markdown.ts';

const HEAD = 'Values of the chart of weir. docs/kubernetes.md explains them.';

/** The text of `deploy/helm/values.yaml`. */
export function chartValuesYaml(): string {
  const document = new Document(nest(({ default: initial }) => initial));
  for (const [path, { description, accepts }] of Object.entries(CHART_VALUES)) {
    const names = path.split('.');
    const parent = document.getIn(names.slice(0, -1), true) ?? document.contents;
    const key = keyOf(parent as YAMLMap, names.at(-1)!);
    key.commentBefore = commentOf(`${description} Accepts ${accepts}.`);
  }
  // A blank line follows the comment of the document anyway.
  for (const { key } of (document.contents as unknown as YAMLMap).items.slice(1)) {
    if (isScalar(key)) key.spaceBefore = true;
  }
  document.commentBefore = ` ${HEAD}`;
  return document.toString({ lineWidth: 0 });
}

/** The text of `deploy/helm/values.schema.json`. */
export function chartValuesSchemaJson(): string {
  const schema: JsonSchema = {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Values of the chart of weir',
    ...group({
      ...nest(({ schema: rules, description }) => ({ description, ...rules })),
      // Helm sets it if the chart is a part of another one.
      global: { type: 'object' },
    }),
  };
  return `${JSON.stringify(schema, undefined, 2)}\n`;
}

export function chartValuesTable(): string {
  const rows = Object.entries(CHART_VALUES).map(([path, { default: initial, ...value }]) => {
    const shown = initial === '' ? 'none' : inlineCode(defaultText(initial));
    return [inlineCode(path), shown, value.accepts, value.description];
  });
  return markdownTable(['value', 'default', 'accepts', 'meaning'], rows);
}

type ChartValue = (typeof CHART_VALUES)[string];

/** Marks objects that stand for a group of values. */
class Group {
  [name: string]: unknown;
}

/** An object with a part of each value at its path. */
function nest(partOf: (value: ChartValue) => unknown): Record<string, unknown> {
  const top: Record<string, unknown> = {};
  for (const [path, value] of Object.entries(CHART_VALUES)) {
    const [first, second] = path.split('.');
    if (second === undefined) {
      top[first] = partOf(value);
      continue;
    }
    top[first] ??= new Group();
    (top[first] as Group)[second] = partOf(value);
  }
  return top;
}

/** The schema of an object that has these properties only. */
function group(properties: object): JsonSchema {
  const rules = Object.entries(properties).map(([name, rule]) => {
    return [name, rule instanceof Group ? group(rule) : rule];
  });
  return { type: 'object', properties: Object.fromEntries(rules), additionalProperties: false };
}

function keyOf(map: YAMLMap, name: string) {
  const pair = isMap(map) ? map.items.find(({ key }) => isScalar(key) && key.value === name) : null;
  if (!isScalar(pair?.key)) throw new Error(`the values have no key ${name}`);
  return pair.key;
}

function commentOf(text: string): string {
  return wrapProse(text)
    .split('\n')
    .map((line) => ` ${line}`)
    .join('\n');
}

function defaultText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
