"""`python -m oncron` is `oncron`."""

from oncron.cli import main

if __name__ == "__main__":
    main()
