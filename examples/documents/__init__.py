"""An application that turns documents into embeddings, with a job for each document.

Read it in this order; each file fits on a screen or two:

    models.py       the application's own tables, on a Base of its own
    uploads.py      one transaction stores a document and adds its job
    jobs.py         the handler: read, compute outside any transaction, store
    extraction.py, embedder.py, search.py      what any such application has
    migrations/     the tables of the application and of the queue, in one Alembic history
    service.py      makes the model slow and unavailable, for rehearsals; a real application has no such file
    demo/           the story that `python3 examples` tells; nothing in it is needed to run the application
"""
