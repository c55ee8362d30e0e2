/** Examples in Markdown: a request as a curl command, and its response. */

import { STATUS_CODES } from 'node:http';
import { codeBlock } from '../markdown.ts';
import type {
  ExampleRequest,
  ReferenceExample,
  ReferenceOperation,
  ReferenceResponse,
} from './model.ts';

/** The widest line of JSON: the page at `/docs` shows it in a narrow column. */
const JSON_COLUMNS = 58;

/** Of the body in a command, behind `-d '`. */
const DATA_COLUMN = 6;

export function exampleText(example: ReferenceExample, { responses }: ReferenceOperation): string {
  const { summary, status, request, response } = example;
  const head = headLines(example, responses);
  const body = response === undefined ? '' : responseBody(response.value);
  const parts = [
    `#### Example: ${summary} (${status})`,
    request && curlBlock(request, head.length > 0 ? '-i' : '-s'),
    head.length > 0
      ? codeBlock('http', [head.join('\n'), body].join('\n\n'))
      : body !== '' && codeBlock('json', body),
  ];
  return parts.filter(Boolean).join('\n\n');
}

/** The command that sends a request. @param flags of curl */
export function curlBlock({ url, headers, body }: ExampleRequest, flags: string): string {
  const options = Object.entries(headers).map(([name, value]) => {
    const quote = value.includes('$') ? '"' : "'";
    return `-H ${quote}${name}: ${value}${quote}`;
  });
  const target = /[^\w.:/%-]/.test(url) ? `'${url}'` : url;
  const data = body === undefined ? [] : [`-d '${quotable(compactJson(body, 2, DATA_COLUMN))}'`];
  return codeBlock('sh', [`curl ${flags} ${target}`, ...options, ...data].join(' \\\n  '));
}

export function jsonBlock(value: unknown): string {
  return codeBlock('json', compactJson(value));
}

/** An apostrophe ends a quotation in apostrophes, so it stands outside. */
function quotable(json: string): string {
  return json.replaceAll("'", `'\\''`);
}

function responseBody(value: unknown): string {
  return typeof value === 'string' ? value : compactJson(value);
}

/** The status line and the headers, where they say more than the body. */
function headLines(
  { name, status, response }: ReferenceExample,
  responses: readonly ReferenceResponse[],
): string[] {
  const found = responses.find((one) => one.status === status);
  const { headers = [], code, contentType } = found ?? {};
  const isError = response !== undefined && code !== undefined;
  if (isError || headers.length === 0) return [];
  const shown = headers.flatMap(({ name: header, schema, example, examples }) => {
    const value = examples?.[name]?.value ?? example ?? schema.const;
    const isOptional = header.startsWith('X-RateLimit-');
    return isOptional ? [] : [`${header}: ${value}`];
  });
  const type = response === undefined ? [] : [`Content-Type: ${contentType}`];
  return [`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, ...shown, ...type];
}

/**
 * JSON with each object and array in one line where it fits.
 * @param indent of the lines that follow the first one, in columns
 * @param start the column of the value
 */
function compactJson(value: unknown, indent = 0, start = indent): string {
  const line = JSON.stringify(value);
  if (typeof value !== 'object' || value === null) return line;
  if (start + line.length <= JSON_COLUMNS) return line;
  const inner = indent + 2;
  const isList = Array.isArray(value);
  const items = Object.entries(value).map(([name, item]) => {
    const label = `${' '.repeat(inner)}${isList ? '' : `${JSON.stringify(name)}: `}`;
    return label + compactJson(item, inner, label.length);
  });
  const [open, close] = isList ? '[]' : '{}';
  return `${open}\n${items.join(',\n')}\n${' '.repeat(indent)}${close}`;
}
