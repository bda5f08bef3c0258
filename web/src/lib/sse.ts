export interface SseMessage {
  event: string;
  data: string;
}

/** Takes a stream of server-sent events apart. A browser's EventSource sends no token. */
export class SseReader {
  #rest = '';

  push(text: string): SseMessage[] {
    const parts = (this.#rest + text).split('\n\n');
    this.#rest = parts.pop() ?? '';
    return parts.map(message).filter((one) => one.data !== '');
  }
}

function message(block: string): SseMessage {
  const found: SseMessage = { event: 'message', data: '' };
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    const value = line.slice(colon + 1).replace(/^ /, '');
    const name = line.slice(0, colon);
    if (name === 'event') found.event = value;
    if (name === 'data') found.data += found.data === '' ? value : `\n${value}`;
  }
  return found;
}
