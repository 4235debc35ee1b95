from st_xlret.commands import main

if __name__ == "__main__":
    main()
