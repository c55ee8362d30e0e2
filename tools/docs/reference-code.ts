/** Examples: a request as a curl command, and JSON with its parts marked for colors. */

import { curlLines, joinCurlLines, quotable } from './curl.ts';
import { type Html, html, joinHtml } from './html.ts';
import type { ExampleRequest } from './reference-model.ts';

/** Strings, with the colon of a member behind them, and all other values. */
const TOKEN = /("(?:\\.|[^"\\])*")(:?)|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

export function codeBlock(text: string): Html {
  return html`<pre><code>${text}</code></pre>`;
}

/** The command that sends a request of an example. @param flags of curl */
export function curlBlock(request: ExampleRequest, flags = ''): Html {
  const { body } = request;
  const lines = curlLines(request, flags);
  if (body === undefined) return codeBlock(joinCurlLines(lines));
  const json = quotable(JSON.stringify(body, undefined, 2)).replaceAll('\n', '\n  ');
  const before = joinCurlLines([...lines, "-d '"]);
  return html`<pre><code>${before}${highlightJson(json)}'</code></pre>`;
}

export function jsonBlock(value: unknown): Html {
  return responseBlock([], { value });
}

/** @param head the status line and the headers, if they are shown @param body JSON or a text */
export function responseBlock(head: readonly string[], body: { value: unknown } | undefined): Html {
  const parts = [head.join('\n'), body === undefined ? '' : bodyText(body.value)];
  const shown = parts.filter((part) => part !== '');
  return html`<pre><code>${joinHtml(shown, '\n\n')}</code></pre>`;
}

function bodyText(value: unknown): string | Html {
  return typeof value === 'string' ? value : highlightJson(JSON.stringify(value, undefined, 2));
}

function highlightJson(json: string): Html {
  const parts: (string | Html)[] = [];
  let end = 0;
  for (const match of json.matchAll(TOKEN)) {
    const [token, string, colon] = match;
    parts.push(json.slice(end, match.index));
    if (string === undefined) parts.push(html`<i class="v">${token}</i>`);
    else if (colon === '') parts.push(html`<i class="s">${token}</i>`);
    else parts.push(html`<i class="k">${string}</i>:`);
    end = match.index + token.length;
  }
  return html`${parts}${json.slice(end)}`;
}
