/**
 * What `weir stats` and `weir top` share: the operations of the analytics, and the cells that show
 * their figures. A response of another shape is a StartError, so the terminal gets only numbers and
 * escaped texts.
 */

import { isNamespaceId } from '../api/common/namespace-reference.ts';
import type { ResponseOf } from '../api/operations/documentation.ts';
import { NAMESPACE_MAX_CHARACTERS } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';
import { FIGURES, type Figures } from '../core/figures.ts';
import { OTHER_NAMESPACE } from '../core/namespace.ts';
import { formatCell, quoted } from './output.ts';
import type { ServerClient } from './server-client.ts';

type NamespacesResponse = ResponseOf<'analytics.getNamespaces'>;
type TimelineResponse = ResponseOf<'analytics.getTimeline'>;
type IdentifiersResponse = ResponseOf<'analytics.getIdentifiers'>;
type SearchResponse = ResponseOf<'analytics.searchIdentifiers'>;
export type SearchedIdentifier = SearchResponse['identifiers'][number];
export type ListedIdentifier = IdentifiersResponse['denied'][number];

/** Unix ms. The server has defaults for both. */
interface TimeRange {
  start?: number | undefined;
  end?: number | undefined;
}

export type NamespaceFields = { namespaceId: string } | { namespaceName: string };

/** The argument `<namespace>`: a name or an id. @throws StartError */
export function parseNamespaceArgument(text: string): NamespaceFields {
  const { length } = [...text];
  if (length < 1 || length > NAMESPACE_MAX_CHARACTERS) {
    throw new StartError(
      `<namespace> must have from 1 to ${NAMESPACE_MAX_CHARACTERS} characters; got ${length}`,
    );
  }
  const isId = isNamespaceId(text) && text !== OTHER_NAMESPACE;
  return isId ? { namespaceId: text } : { namespaceName: text };
}

/** The operations of the analytics. Each throws StartErrors. */
export type AnalyticsReader = Pick<AnalyticsClient, 'namespaces' | 'timeline' | 'identifiers'>;

export class AnalyticsClient {
  readonly #server: ServerClient;
  readonly #signal: AbortSignal | undefined;

  /** @param signal ends the wait for a response */
  constructor(server: ServerClient, signal?: AbortSignal) {
    this.#server = server;
    this.#signal = signal;
  }

  namespaces(fields: TimeRange & { limit?: number | undefined } = {}): Promise<NamespacesResponse> {
    const isExpected = ({ namespaces, total }: NamespacesResponse) => {
      const isNamed = namespaces.every((item) => isText(item.name) && areFigures(item));
      return isNamed && isCount(total);
    };
    return this.#get<NamespacesResponse>('getNamespaces', fields, isExpected);
  }

  timeline(
    fields: NamespaceFields & TimeRange & { granularity: TimelineResponse['granularity'] },
  ): Promise<TimelineResponse> {
    const isExpected = ({ namespace, points }: TimelineResponse) => {
      const arePoints = points.every((point) => isCount(point.time) && areFigures(point));
      return isText(namespace.name) && arePoints;
    };
    return this.#get<TimelineResponse>('getTimeline', fields, isExpected);
  }

  identifiers(
    fields: Partial<NamespaceFields> & TimeRange & { limit?: number | undefined },
  ): Promise<IdentifiersResponse> {
    const isExpected = ({ namespace, denied, spent }: IdentifiersResponse) => {
      const areListed = [...denied, ...spent].every(({ identifier, count, error }) => {
        return isText(identifier) && isCount(count) && isCount(error);
      });
      const areNamed = namespace !== undefined || [...denied, ...spent].every(hasNamespace);
      return areNamed && areListed;
    };
    return this.#get<IdentifiersResponse>('getIdentifiers', fields, isExpected);
  }

  search(
    fields: Partial<NamespaceFields> & { prefix: string; limit?: number | undefined },
  ): Promise<SearchResponse> {
    const isExpected = ({ identifiers }: SearchResponse) => {
      return identifiers.every(
        ({ identifier, namespace, denied, spent, lastDeniedAt, sources }) => {
          const areCounts = [denied, spent].every((counted) => {
            return counted === undefined || (isCount(counted.count) && isCount(counted.error));
          });
          const areTexts = [identifier, namespace.name, ...sources].every(isText);
          return areTexts && areCounts && (lastDeniedAt === undefined || isCount(lastDeniedAt));
        },
      );
    };
    return this.#get<SearchResponse>('searchIdentifiers', fields, isExpected);
  }

  async #get<T extends { start: number; end: number }>(
    operation: string,
    fields: object,
    isExpected: (response: T) => boolean,
  ): Promise<T> {
    const query = { ...fields };
    const response = await this.#server.get<T>(`analytics.${operation}`, query, this.#signal);
    let isValid = isCount(response.start) && isCount(response.end);
    try {
      isValid &&= isExpected(response);
    } catch {
      isValid = false;
    }
    if (!isValid) throw this.#server.unexpectedResponseError(200);
    return response;
  }
}

function isText(value: unknown): boolean {
  return typeof value === 'string';
}

function hasNamespace({ namespace }: ListedIdentifier): boolean {
  return isText(namespace?.name);
}

function isCount(value: unknown): boolean {
  return Number.isFinite(value) && (value as number) >= 0;
}

function areFigures(figures: Figures): boolean {
  return FIGURES.every(({ name }) => isCount(figures[name]));
}

/** Said of lists of identifiers. */
export const INCOMPLETE = 'incomplete: some checks were not counted by identifier';

/** The beginning of an identifier that is cut off ends with an ellipsis. */
export function identifierCell({
  identifier,
  cutOff,
}: Pick<ListedIdentifier, 'identifier' | 'cutOff'>): string {
  return cutOff ? `${quoted(identifier)}…` : formatCell(identifier);
}

/** A count; a range where the true count is not known exactly. */
export function countCell({ count, error }: { count: number; error: number }): string {
  return error === 0 ? String(count) : `${count - error}-${count}`;
}
