/**
 * HTML for the generated pages. Text is escaped unless it is an `Html` already, so a page contains
 * no markup except that of the templates.
 */

/** Markup that needs no escape. Only the template `html` and `trustedHtml` create it. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Absent values render as nothing, lists as their items in their order. */
type Content = string | number | Html | false | undefined | readonly Content[];

/** A template: each value is escaped, for the content of an element or a quoted attribute. */
export function html(markup: TemplateStringsArray, ...values: readonly Content[]): Html {
  const parts = values.map((value, i) => render(value) + markup[i + 1]);
  return new Html(markup[0] + parts.join(''));
}

/** @param text markup of a library that escapes the text in it */
export function trustedHtml(text: string): Html {
  return new Html(text);
}

function escapeHtml(text: string): string {
  return text.replace(/[<>&"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

function render(content: Content): string {
  if (content instanceof Html) return content.text;
  if (Array.isArray(content)) return content.map(render).join('');
  if (content === undefined || content === false) return '';
  return escapeHtml(String(content));
}
