/**
 * The descriptions of the OpenAPI document as HTML. They are Markdown with paragraphs, lists,
 * headings and inline code. HTML and links in them are shown as text: a page refers to no other
 * server.
 */

import GithubSlugger from 'github-slugger';
import { Marked, type Tokens } from 'marked';
import { escapeHtml, type Html, html, trustedHtml } from './html.ts';

const prose = new Marked({
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escapeHtml(text),
    link: ({ raw }: Tokens.Link) => escapeHtml(raw),
    image: ({ raw }: Tokens.Image) => escapeHtml(raw),
  },
});

/** A part of a description, from one heading to the next. */
interface Section {
  id: string;
  heading: string;
  body: Html;
}

/** Paragraphs and lists. */
export function renderProse(markdown: string): Html {
  return trustedHtml(prose.parse(markdown, { async: false }));
}

/** One sentence or more, without a paragraph around them. */
export function renderInline(markdown: string): Html {
  return trustedHtml(prose.parseInline(markdown, { async: false }));
}

/** Splits a description at its headings of the second level. Text before the first is an error. */
export function readSections(markdown: string): Section[] {
  const slugger = new GithubSlugger();
  const [before, ...parts] = markdown.split(/^## /m);
  if (before.trim() !== '') throw new Error(`the description must begin with ##; got ${before}`);
  return parts.map((part) => {
    const end = part.indexOf('\n');
    const heading = part.slice(0, end);
    return { id: slugger.slug(heading), heading, body: renderProse(part.slice(end)) };
  });
}

/** A code with places to break the line, after each separator. */
export function breakableCode(code: string): Html {
  const parts = code.split(/(?<=[_./])/);
  return html`<code>${parts.map((part, i) => [i > 0 && html`<wbr>`, part])}</code>`;
}
