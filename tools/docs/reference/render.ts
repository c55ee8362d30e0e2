/**
 * Makes HTML from the Markdown of the reference. A heading of the second level begins a section.
 * One of the third begins an article, whose tables become lists of fields. One of the fourth begins
 * a part of the article. A part with code only is an example, in a column of its own.
 *
 * HTML in the Markdown, and links to other servers, are shown as text: a page runs no script, and
 * refers to no other server.
 */

import GithubSlugger from 'github-slugger';
import { Marked, type RendererObject, type Token, type Tokens } from 'marked';
import { type Html, html, trustedHtml } from './html.ts';

/** Strings, with the colon of a member behind them, and all other values. */
const JSON_TOKEN =
  /("(?:\\.|[^"\\])*")(:?)|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** The beginning of the JSON in a block of code, by its language. */
const JSON_STARTS: Readonly<Record<string, RegExp>> = { json: /^/, sh: /-d '/, http: /\n\n/ };

const RENDERER: RendererObject = {
  text(token) {
    const tokens = 'tokens' in token ? token.tokens : undefined;
    return tokens === undefined ? html`${token.text}`.text : this.parser.parseInline(tokens);
  },
  html: ({ text }) => html`${text}`.text,
  image: ({ raw }) => html`${raw}`.text,
  link({ href, raw, text, tokens }) {
    if (/^(\w+:|\/\/)/.test(href)) return html`${raw}`.text;
    const isStatus = /^\d{3}$/.test(text);
    const label = isStatus ? statusBadge(text) : trustedHtml(this.parser.parseInline(tokens));
    return html`<a href="${href}">${label}</a>`.text;
  },
  codespan({ text }) {
    const [, method, path] = /^(GET|POST|ANY) (\/\S*)$/.exec(text) ?? [];
    if (path === undefined) return breakableCode(text).text;
    const badge = html`<span class="method ${method.toLowerCase()}">${method}</span>`;
    return html`${badge} ${breakableCode(path)}`.text;
  },
  code({ text, lang = '' }) {
    const start = JSON_STARTS[lang]?.exec(text)?.index ?? text.length;
    const json = highlightJson(text.slice(start));
    return html`<pre><code>${text.slice(0, start)}${json}</code></pre>\n`.text;
  },
};

const prose = new Marked({ renderer: RENDERER });
const article = new Marked({
  renderer: {
    ...RENDERER,
    /** The first cell is a name, the last one its meaning. */
    table({ rows }) {
      const items = rows.map((cells) => {
        const [name, ...rest] = cells.map(({ tokens }) => {
          return trustedHtml(this.parser.parseInline(tokens));
        });
        const notes = rest.slice(0, -1).map((note) => html` <span class="type">${note}</span>`);
        return html`<li><p class="field">${fieldName(cells[0].text) ?? name}${notes}</p>
<p>${rest.at(-1)}</p></li>\n`;
      });
      return html`<ul class="fields">\n${items}</ul>\n`.text;
    },
  },
});

/** The content of a page. */
export function renderMarkdown(markdown: string): Html {
  const slugger = new GithubSlugger();
  const [introduction, ...sections] = splitAt(prose.lexer(markdown), 2);
  return html`${flow(prose, introduction)}${sections.map((section) => {
    const [[heading, ...text], ...articles] = splitAt(section, 3);
    const id = slugger.slug((heading as Tokens.Heading).text);
    return html`<section aria-labelledby="${id}">
<h2 id="${id}">${inline(heading)}</h2>
${flow(prose, text)}${articles.map((tokens) => renderArticle(tokens, slugger))}</section>
`;
  })}`;
}

function renderArticle([heading, ...rest]: readonly Token[], slugger: GithubSlugger): Html {
  const { text } = heading as Tokens.Heading;
  const id = slugger.slug(text);
  const [introduction, ...parts] = splitAt(rest, 4);
  const examples = parts.filter(isExample);
  const others = parts.filter((part) => !isExample(part));
  return html`<article class="operation" aria-labelledby="${id}">
<h3 id="${id}">${inline(heading)}<a class="anchor" href="#${id}" aria-label="Link to ${text}"
>#</a></h3>
<div class="columns">
<div class="text">
${flow(article, introduction)}${others.map(([title, ...tokens]) => {
  return html`<h4>${withBadge(inline(title))}</h4>\n${flow(article, tokens)}`;
})}</div>
${
  examples.length > 0 &&
  html`<div class="examples">
<h4>Examples</h4>
${examples.map(exampleBlock)}</div>`
}
</div>
</article>
`;
}

function exampleBlock([heading, ...blocks]: readonly Token[], index: number): Html {
  const title = (heading as Tokens.Heading).text.replace(/^Example: /, '');
  const parts = blocks.map((block) => {
    const label = (block as Tokens.Code).lang === 'sh' ? 'Request' : 'Response';
    return html`<p class="label">${label}</p>\n${flow(prose, [block])}`;
  });
  return html`<details class="example"${index === 0 && html` open`}>
<summary>${withBadge(html`${title}`)}</summary>
${parts}</details>
`;
}

function isExample([, ...blocks]: readonly Token[]): boolean {
  return blocks.every(({ type }) => type === 'code');
}

/** Splits blocks before each heading of a level. What comes before the first is the first part. */
function splitAt(tokens: readonly Token[], depth: number): Token[][] {
  const parts: Token[][] = [[]];
  for (const token of tokens) {
    if (token.type === 'space') continue;
    if (token.type === 'heading' && token.depth === depth) parts.push([]);
    parts.at(-1)?.push(token);
  }
  return parts;
}

function flow(renderer: Marked, tokens: readonly Token[]): Html {
  return trustedHtml(renderer.parser([...tokens]));
}

function inline(heading: Token): Html {
  return trustedHtml(prose.Parser.parseInline((heading as Tokens.Heading).tokens, prose.defaults));
}

/** Shows a status at the end of a heading as a badge. */
function withBadge({ text }: Html): Html {
  const [, title, status] = /^(.*) \(?(\d{3})\)?$/.exec(text) ?? [];
  return status === undefined
    ? trustedHtml(text)
    : html`${trustedHtml(title)} ${statusBadge(status)}`;
}

function statusBadge(status: string): Html {
  return html`<span class="status s${status[0]}">${status}</span>`;
}

/** The name of a field; the path to it, as in `data.limits[].passed`, is less visible. */
function fieldName(markdown: string): Html | undefined {
  const [, path = '', name] = /^`((?:.*\.)?)([^.`]+)`$/.exec(markdown) ?? [];
  if (name === undefined) return undefined;
  return html`<code class="name">${path !== '' && html`<span>${path}</span>`}${name}</code>`;
}

/** A code with places to break the line, after each separator in it. */
export function breakableCode(code: string): Html {
  const parts = code.split(/(?<=.[_./])/);
  return html`<code>${parts.map((part, i) => [i > 0 && html`<wbr>`, part])}</code>`;
}

function highlightJson(json: string): Html {
  const parts: (string | Html)[] = [];
  let end = 0;
  for (const match of json.matchAll(JSON_TOKEN)) {
    const [token, string, colon] = match;
    parts.push(json.slice(end, match.index));
    if (string === undefined) parts.push(html`<i class="v">${token}</i>`);
    else if (colon === '') parts.push(html`<i class="s">${token}</i>`);
    else parts.push(html`<i class="k">${string}</i>:`);
    end = match.index + token.length;
  }
  return html`${parts}${json.slice(end)}`;
}
